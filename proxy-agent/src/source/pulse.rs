//! Whether the API server answers watches.
//!
//! A watch that is set up again after a failure says nothing until something changes, which in a
//! quiet cluster takes hours. The response to its request is the sign that it is back.

use std::sync::Arc;

use futures::FutureExt;
use http::{Request, Response};
use kube::{Client, client::Body};
use tokio::sync::Notify;

/// Signs of life of the watches of one resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(Arc<Notify>);

impl Pulse {
    /// The same client, with its successful watch requests noticed.
    pub(crate) fn observe(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let pulse = self.0.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, pulse) = (client.clone(), pulse.clone());
            async move {
                let watches = request.uri().query().is_some_and(is_watch);
                let response: Response<Body> = client.send(request).await?;
                if watches && response.status().is_success() {
                    pulse.notify_one();
                }
                Ok::<_, kube::Error>(response)
            }
        });
        Client::new(service, namespace)
    }

    /// Forgets what came before.
    pub(crate) fn forget(&self) {
        self.0.notified().now_or_never();
    }

    /// Waits for the next sign of life, or returns at once if there was one since the last call.
    pub(crate) async fn beat(&self) {
        self.0.notified().await;
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|part| part == "watch=true")
}
