//! The client of the API server: where it is, and who we are.

use std::{
    error::Error,
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// The longest silence of a response that is not yet a dead connection: watches end after 290 s by
/// themselves, and lists answer long before.
const SILENCE: Duration = Duration::from_secs(300);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("use the kubeconfig {path}; it must exist, be readable and have a current context",
        path = path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Neither a kubeconfig nor an address was given, and this is no pod.
    #[error(
        "find the API server: this is not a pod with a service account, so give --kubeconfig \
        FILE (or --manifests DIR to run without a cluster)"
    )]
    NotInCluster(#[source] Box<dyn Error + Send + Sync>),
    /// The address given by `--master` is no URL.
    #[error("use --master {address}: it must be a URL such as https://10.0.0.1:6443")]
    Master {
        /// What was given.
        address: String,
        /// What is wrong with it.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Certificates or credentials cannot be used.
    #[error(
        "set up the connection to the API server {server}; check its certificates and \
        credentials"
    )]
    Setup {
        /// Where it would have gone.
        server: String,
        /// What is wrong.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Makes the client, as kube-proxy does: from a kubeconfig, with its address replaced by `master`
/// where that is given; from `master` alone, without credentials; from the pod's service account if
/// neither is given. Connects to nobody yet.
pub async fn connect(
    kubeconfig: Option<&Path>,
    master: Option<&str>,
) -> Result<Client, ClientError> {
    let mut config = match (kubeconfig, master) {
        (Some(path), _) => from_file(path).await?,
        (None, Some(_)) => Config::new(Default::default()),
        (None, None) => {
            Config::incluster().map_err(|error| ClientError::NotInCluster(error.into()))?
        }
    };
    if let Some(address) = master {
        config.cluster_url = parse_master(address)?;
    }
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config.headers.push(user_agent());
    let server = config.cluster_url.to_string();
    Client::try_from(config).map_err(|error| ClientError::Setup {
        server,
        source: error.into(),
    })
}

async fn from_file(path: &Path) -> Result<Config, ClientError> {
    let wrap = |source: Box<dyn Error + Send + Sync>| ClientError::Kubeconfig {
        path: path.to_owned(),
        source,
    };
    let file = Kubeconfig::read_from(path).map_err(|error| wrap(error.into()))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|error| wrap(error.into()))
}

fn parse_master(address: &str) -> Result<http::Uri, ClientError> {
    let wrap = |source: Box<dyn Error + Send + Sync>| ClientError::Master {
        address: address.to_owned(),
        source,
    };
    let uri: http::Uri = address
        .parse()
        .map_err(|error: http::uri::InvalidUri| wrap(error.into()))?;
    match uri.scheme_str() {
        Some("http" | "https") => Ok(uri),
        _ => Err(wrap("it does not start with https:// or http://".into())),
    }
}

fn user_agent() -> (http::HeaderName, http::HeaderValue) {
    let agent = concat!("sidestep/", env!("CARGO_PKG_VERSION"));
    (
        http::header::USER_AGENT,
        http::HeaderValue::from_static(agent),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn message(kubeconfig: Option<&Path>, master: Option<&str>) -> String {
        let error = connect(kubeconfig, master).await.err().expect("fails");
        error.to_string()
    }

    const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
        contexts: [{name: a, context: {cluster: a, user: a}}]\n\
        clusters: [{name: a, cluster: {server: 'https://192.0.2.1:6443'}}]\n\
        users: [{name: a, user: {token: t}}]\n";

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_named() {
        let text = message(Some(Path::new("/nonexistent/kubeconfig")), None).await;
        assert!(
            text.starts_with("use the kubeconfig /nonexistent/kubeconfig; "),
            "{text}"
        );
        let dir = tempfile::tempdir().expect("a temporary folder");
        let file = dir.path().join("config");
        std::fs::write(&file, "kind: [").expect("write");
        let text = message(Some(&file), None).await;
        assert!(text.contains("use the kubeconfig"), "{text}");
    }

    #[tokio::test]
    async fn a_kubeconfig_is_enough_and_master_replaces_its_server() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let file = dir.path().join("config");
        std::fs::write(&file, KUBECONFIG).expect("write");
        assert!(connect(Some(&file), None).await.is_ok());
        assert!(
            connect(Some(&file), Some("https://192.0.2.2:6443"))
                .await
                .is_ok()
        );
        assert!(connect(None, Some("http://127.0.0.1:8080")).await.is_ok());
    }

    #[tokio::test]
    async fn a_master_that_is_no_url_is_refused() {
        for master in ["", "10.0.0.1:6443", "ftp://x", "https://"] {
            let text = message(None, Some(master)).await;
            assert!(
                text.starts_with(&format!("use --master {master}: ")),
                "{text}"
            );
        }
    }
}
