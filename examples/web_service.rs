//! A web service that hands over in order: when it is to end, it loses its traffic, answers what it has begun, and its
//! background work goes on in another instance.
//!
//! `GET /ready` is for the load balancer: 503 as soon as the instance drains. `POST /drain` is for operators; SIGTERM
//! drains, too, and ends the process. A worker sends mails on one of the instances.
//!
//! Two instances are in this process here, on loopback. One is drained while it answers something slow; then SIGTERM ends
//! both. Run it with `cargo run --example web_service`.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use tenure::{Ctx, MemoryStore, Tenure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

type Failed = Box<dyn Error + Send + Sync>;

async fn ready(State(tenure): State<Tenure>) -> StatusCode {
    if tenure.is_draining() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}

async fn drain(State(tenure): State<Tenure>) -> Result<&'static str, (StatusCode, String)> {
    tenure.drain().await.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok("drained: nothing is held here any more")
}

async fn slow() -> &'static str {
    tokio::time::sleep(Duration::from_millis(500)).await;
    "the whole report"
}

/// One instance: serves until the process is asked to end, and everything has been handed over and answered.
async fn instance(
    tenure: Tenure,
    listener: TcpListener,
    mails: mpsc::UnboundedSender<String>,
) -> Result<(), Failed> {
    let name = tenure.identity().instance().to_owned();
    let mailer = move |ctx: Ctx| {
        let (name, mails) = (name.clone(), mails.clone());
        async move {
            while !ctx.is_draining() {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let _nobody_reads = mails.send(format!("{name} sends a mail, under token {}", ctx.token()));
            }
        }
    };
    let _mailer = tenure.worker("mailer", mailer).start()?;
    let routes = axum::Router::new()
        .route("/ready", get(ready))
        .route("/drain", post(drain))
        .route("/report", get(slow))
        .with_state(tenure.clone());

    let (running, over) = tokio::sync::oneshot::channel::<()>();
    let server = axum::serve(listener, routes).with_graceful_shutdown(async { drop(over.await) });
    let server = tokio::spawn(server.into_future());
    // It serves while it drains: the load balancer needs some time to hear of it.
    let ended = tenure.until_terminated().await;
    // From here on no new requests; those that are under way are answered.
    drop(running);
    server.await??;
    Ok(ended?)
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let (store, mut services, mut addresses) = (MemoryStore::new(), Vec::new(), Vec::new());
    let (sender, mut mails) = mpsc::unbounded_channel();
    for name in ["blue", "green"] {
        let tenure = tenure::builder().store(store.handle()).instance(name).start()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.push(listener.local_addr()?);
        services.push(tokio::spawn(instance(tenure, listener, sender.clone())));
        // Blue has the mailer before green is there.
        println!("{}", mails.recv().await.ok_or("no mailer")?);
    }

    let blue = addresses[0];
    println!("blue: ready {}", ask(blue, "GET /ready").await?);
    let report = tokio::spawn(ask(blue, "GET /report"));
    println!("blue: drain {}", ask(blue, "POST /drain").await?);
    println!("blue: ready {}", ask(blue, "GET /ready").await?);
    println!("blue: what it had begun {}", report.await??);
    while let Some(mail) = mails.recv().await {
        if mail.starts_with("green") {
            println!("{mail}");
            break;
        }
    }

    // What a supervisor does; without signals it is `Tenure::begin_shutdown`.
    let pid = std::process::id();
    std::process::Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).status()?;
    for service in services {
        service.await??;
    }
    println!("both have ended in order");
    Ok(())
}

/// A request and its answer, by hand.
async fn ask(address: SocketAddr, request: &'static str) -> Result<String, Failed> {
    let mut connection = TcpStream::connect(address).await?;
    let head =
        format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    connection.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    Ok(format!("{:?} {body:?}", head.lines().next().unwrap_or_default()))
}
