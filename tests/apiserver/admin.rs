//! The tests' own client of the API server, with all rights: makes and changes objects.

use std::{future::Future, path::Path};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Requests under way at once when many objects are made.
const ABREAST: usize = 16;

/// A client with a runtime of its own, on the thread that uses it.
pub(crate) struct Admin {
    runtime: Runtime,
    client: Client,
}

/// A namespace of the cluster.
pub(crate) struct Space<'a> {
    admin: &'a Admin,
    pub(crate) name: String,
}

/// An endpoint of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: String,
    pub(crate) node: String,
    pub(crate) ready: bool,
}

impl Admin {
    /// A client as a kubeconfig says.
    pub(crate) fn new(kubeconfig: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start a runtime")?;
        let client = runtime.block_on(async {
            let file = Kubeconfig::read_from(kubeconfig)?;
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(file, &options).await?;
            anyhow::Ok(Client::try_from(config)?)
        });
        let client = client.with_context(|| format!("use {}", kubeconfig.display()))?;
        Ok(Self { runtime, client })
    }

    /// An error unless the API server says that it is ready.
    pub(crate) fn is_ready(&self) -> anyhow::Result<()> {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        self.wait(self.client.request_text(request))?;
        Ok(())
    }

    /// Makes a namespace, or takes the one that is there.
    pub(crate) fn namespace(&self, name: &str) -> anyhow::Result<Space<'_>> {
        let object = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        let api = Api::<Namespace>::all(self.client.clone());
        let created = self.wait(api.create(&PostParams::default(), &object));
        match created {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => {
                created.with_context(|| format!("create namespace {name}"))?;
            }
        }
        Ok(Space {
            admin: self,
            name: name.to_owned(),
        })
    }

    /// The code of the answer to a list request of this user.
    pub(crate) fn list_code(&self, path: &str) -> anyhow::Result<u16> {
        let request = http::Request::get(path).body(Vec::new())?;
        match self.wait(self.client.request_text(request)) {
            Ok(_) => Ok(200),
            Err(kube::Error::Api(status)) => Ok(status.code),
            Err(error) => Err(error).with_context(|| format!("ask for {path}")),
        }
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

impl Space<'_> {
    /// Creates a Service.
    pub(crate) fn create_service(&self, name: &str, spec: &Value) -> anyhow::Result<Service> {
        let object = service(name, spec)?;
        self.admin
            .wait(self.services().create(&PostParams::default(), &object))
            .with_context(|| format!("create Service {}/{name}", self.name))
    }

    /// Changes a Service: a JSON merge patch (RFC 7386).
    pub(crate) fn change_service(&self, name: &str, patch: &Value) -> anyhow::Result<Service> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.admin
            .wait(self.services().patch(name, &params, &patch))
            .with_context(|| format!("change Service {}/{name}", self.name))
    }

    /// Sets the addresses that a load balancer would report.
    pub(crate) fn set_ingress(&self, name: &str, addresses: &[&str]) -> anyhow::Result<()> {
        let ingress: Vec<_> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        let patch = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        self.admin
            .wait(self.services().patch_status(name, &params, &patch))
            .with_context(|| format!("set the status of Service {}/{name}", self.name))?;
        Ok(())
    }

    /// Deletes a Service. Its slices stay: there is no controller that would remove them.
    pub(crate) fn delete_service(&self, name: &str) -> anyhow::Result<()> {
        self.admin
            .wait(self.services().delete(name, &DeleteParams::default()))
            .with_context(|| format!("delete Service {}/{name}", self.name))?;
        Ok(())
    }

    /// Creates or replaces a slice.
    pub(crate) fn apply_slice(&self, slice: &Value) -> anyhow::Result<()> {
        self.admin.wait(apply_slice(&self.slices(), slice))
    }

    /// Deletes a slice.
    pub(crate) fn delete_slice(&self, name: &str) -> anyhow::Result<()> {
        self.admin
            .wait(self.slices().delete(name, &DeleteParams::default()))
            .with_context(|| format!("delete EndpointSlice {}/{name}", self.name))?;
        Ok(())
    }

    /// Creates many Services with one slice each, several at once; returns the Services.
    pub(crate) fn create_all(
        &self,
        objects: Vec<(String, Value, Value)>,
    ) -> anyhow::Result<Vec<Service>> {
        let (services, slices) = (&self.services(), &self.slices());
        let creations = stream::iter(objects).map(|(name, spec, slice)| async move {
            let object = service(&name, &spec)?;
            let created = services
                .create(&PostParams::default(), &object)
                .await
                .with_context(|| format!("create Service {name}"))?;
            apply_slice(slices, &slice).await?;
            anyhow::Ok(created)
        });
        self.admin
            .wait(creations.buffer_unordered(ABREAST).try_collect())
    }

    /// Deletes all Services and slices of the namespace.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        let (delete, all) = (DeleteParams::default(), ListParams::default());
        self.admin.wait(async {
            self.services().delete_collection(&delete, &all).await?;
            self.slices().delete_collection(&delete, &all).await?;
            anyhow::Ok(())
        })
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.admin.client.clone(), &self.name)
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.admin.client.clone(), &self.name)
    }
}

/// A slice `SERVICE-FAMILY` with the given ports: name, number, protocol.
pub(crate) fn slice(
    service: &str,
    family: &str,
    ports: &[(&str, u16, &str)],
    endpoints: &[Endpoint],
) -> Value {
    let ports: Vec<_> = ports
        .iter()
        .map(|(name, port, protocol)| json!({ "name": name, "port": port, "protocol": protocol }))
        .collect();
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|endpoint| {
            json!({
                "addresses": [endpoint.address],
                "nodeName": endpoint.node,
                "conditions": { "ready": endpoint.ready, "serving": endpoint.ready },
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{service}-{}", family.to_lowercase()),
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": family,
        "ports": ports,
        "endpoints": endpoints,
    })
}

fn service(name: &str, spec: &Value) -> anyhow::Result<Service> {
    let object = json!({ "metadata": { "name": name }, "spec": spec });
    Ok(serde_json::from_value(object)?)
}

async fn apply_slice(api: &Api<EndpointSlice>, slice: &Value) -> anyhow::Result<()> {
    let name = slice["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply("apiserver-tests").force();
    api.patch(name, &params, &Patch::Apply(slice))
        .await
        .with_context(|| format!("apply EndpointSlice {name}"))?;
    Ok(())
}
