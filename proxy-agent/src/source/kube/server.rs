//! An API server played by the test: it sees each request and says what the answer is.

use std::{collections::VecDeque, io};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::channel::{Channel, Sender};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

type Answer = io::Result<Response<Channel<Bytes, io::Error>>>;

/// The server's side.
pub(super) struct Server {
    calls: mpsc::UnboundedReceiver<Call>,
    waiting: VecDeque<Call>,
    /// Method and path of every request.
    pub(super) seen: Vec<String>,
}

/// One request that waits for its answer.
pub(super) struct Call {
    path: String,
    /// The query, percent signs decoded.
    pub(super) query: String,
    answer: oneshot::Sender<Answer>,
}

/// A watch that is open.
pub(super) struct Stream(Sender<Bytes, io::Error>);

impl Server {
    pub(super) fn start() -> (Self, Client) {
        let (sender, calls) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let sender = sender.clone();
            async move {
                let (answer, answered) = oneshot::channel();
                let uri = request.uri();
                let call = Call {
                    path: format!("{} {}", request.method(), uri.path()),
                    query: decode(uri.query().unwrap_or_default()),
                    answer,
                };
                let gone = || io::Error::other("the server is gone");
                sender.send(call).map_err(|_| gone())?;
                answered.await.map_err(|_| gone())?
            }
        });
        let server = Self {
            calls,
            waiting: VecDeque::new(),
            seen: Vec::new(),
        };
        (server, Client::new(service, "default"))
    }

    /// The next request about a resource.
    pub(super) async fn call(&mut self, resource: &str) -> Call {
        let end = format!("/{resource}");
        let mine = |call: &Call| call.path.ends_with(&end);
        if let Some(at) = self.waiting.iter().position(mine) {
            return self.waiting.remove(at).expect("it is there");
        }
        loop {
            let call = self.calls.recv().await.expect("the client is there");
            self.seen.push(call.path.clone());
            if mine(&call) {
                return call;
            }
            self.waiting.push_back(call);
        }
    }

    /// Answers the next request about a resource with a complete streaming list.
    pub(super) async fn stream(&mut self, resource: &str, objects: &[Value]) -> Stream {
        let call = self.call(resource).await;
        assert!(
            call.query.contains("sendInitialEvents=true"),
            "{}",
            call.query
        );
        let mut stream = call.open();
        for object in objects {
            stream.send("ADDED", object.clone()).await;
        }
        stream.end_list("10").await;
        stream
    }
}

impl Call {
    /// Answers with the start of a watch.
    pub(super) fn open(self) -> Stream {
        let (sender, body) = Channel::new(64);
        self.answer.send(Ok(Response::new(body))).ok();
        Stream(sender)
    }

    /// Answers with a page of a list.
    pub(super) async fn list(self, objects: &[Value], next: &str) {
        let metadata = json!({"resourceVersion": "10", "continue": next});
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": metadata,
            "items": objects});
        self.reply(StatusCode::OK, list).await;
    }

    /// Answers with an error.
    pub(super) async fn refuse(self, code: u16, message: &str) {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": message, "reason": "Because", "code": code});
        let code = StatusCode::from_u16(code).expect("a status code");
        self.reply(code, status).await;
    }

    /// Closes the connection without an answer.
    pub(super) fn hang_up(self) {
        self.answer
            .send(Err(io::Error::other("connection reset")))
            .ok();
    }

    async fn reply(self, code: StatusCode, body: Value) {
        let (mut sender, channel) = Channel::new(1);
        let mut response = Response::new(channel);
        *response.status_mut() = code;
        self.answer.send(Ok(response)).ok();
        sender.send_data(body.to_string().into()).await.ok();
    }
}

impl Stream {
    /// Sends one event.
    pub(super) async fn send(&mut self, r#type: &str, object: Value) {
        let line = format!("{}\n", json!({"type": r#type, "object": object}));
        self.0
            .send_data(line.into())
            .await
            .expect("the client reads");
    }

    /// Ends the initial list of a streaming list.
    pub(super) async fn end_list(&mut self, version: &str) {
        let bookmark = json!({"kind": "Service", "apiVersion": "v1", "metadata": {
            "resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}}});
        self.send("BOOKMARK", bookmark).await;
    }

    /// Sends an error event.
    pub(super) async fn error(&mut self, code: u16) {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": "too old resource version", "reason": "Expired", "code": code});
        self.send("ERROR", status).await;
    }

    /// The connection breaks.
    pub(super) fn reset(self) {
        self.0.abort(io::Error::other("connection reset"));
    }
}

fn decode(query: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = query.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let hex = [rest.next(), rest.next()].map(|b| char::from(b.expect("two digits")));
                u8::from_str_radix(&String::from_iter(hex), 16).expect("hexadecimal")
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).expect("UTF-8")
}
