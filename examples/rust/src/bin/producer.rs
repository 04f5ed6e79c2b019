//! Publishes messages to a queue of fila with async-nats alone, and waits for the
//! confirmation of each.
//!
//!     cargo run --bin producer QUEUE [COUNT [TODO]]
//!
//! NATS_URL is the address of NATS. It survives restarts of fila and NATS: whatever is
//! not confirmed is published again with the same Nats-Msg-Id, so that it is
//! stored once.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;
use std::{env, process};

use async_nats::{Client, ConnectOptions, HeaderMap, Request, RequestErrorKind};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Tells the example consumers what to show with a message.
const TODO: [&str; 6] = ["ack", "fail", "later", "busy", "slow", "hopeless"];

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    if args.is_empty() {
        eprintln!("usage: producer QUEUE [COUNT [TODO]]");
        process::exit(2);
    }
    let count = args.get(1).map_or(Ok(TODO.len()), |n| n.parse())?;
    let producer = Arc::new(Producer {
        nc: ConnectOptions::new()
            .reconnect_delay_callback(|_| Duration::from_millis(100))
            .connect(env::var("NATS_URL")?)
            .await?,
        subject: format!("fila.enqueue.{}", args[0]),
        only: args.get(2).cloned(),
        next: AtomicUsize::new(0),
    });

    // Several at a time: fila writes messages that arrive together in one commit.
    let mut publishers = JoinSet::<Outcome<()>>::new();
    for _ in 0..16 {
        let producer = producer.clone();
        publishers.spawn(async move {
            loop {
                let i = producer.next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    return Ok(());
                }
                producer.publish(i).await?;
            }
        });
    }
    while let Some(done) = publishers.join_next().await {
        done??;
    }
    Ok(())
}

struct Producer {
    nc: Client,
    subject: String,
    only: Option<String>,
    next: AtomicUsize,
}

impl Producer {
    /// Returns when the message is on disk, or fails when it never can be.
    async fn publish(&self, i: usize) -> Outcome<()> {
        let text = format!("message {i}");
        let mut headers = HeaderMap::new();
        headers.insert("tenant", ["acme", "globex"][i % 2]);
        headers.insert("Nats-Msg-Id", format!("rust-{i}"));
        headers.insert("todo", self.only.as_deref().unwrap_or(TODO[i % TODO.len()]));
        loop {
            let request = Request::new()
                .headers(headers.clone())
                .payload(text.clone().into())
                .timeout(Some(Duration::from_secs(2)));
            let reply = match self.nc.send_request(self.subject.clone(), request).await {
                Ok(reply) => reply,
                Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                    eprintln!("{text}: nobody is there, again in 250 ms");
                    sleep(Duration::from_millis(250)).await;
                    continue;
                }
                Err(error) => {
                    eprintln!("{text}: {error}, again in 100 ms"); // no reply, or not connected
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let header = |name| {
                reply
                    .headers
                    .as_ref()
                    .and_then(|h| h.get(name))
                    .map(|v| v.as_str())
            };
            match header("Nats-Service-Error-Code") {
                None => {
                    let receipt: serde_json::Value = serde_json::from_slice(&reply.payload)?;
                    println!(
                        "stored {text} as {}",
                        receipt["id"].as_str().unwrap_or_default()
                    );
                    return Ok(());
                }
                // 429: the queue is full. 503: fila is stopping. 500: perhaps stored.
                Some(code @ ("429" | "500" | "503")) => {
                    let ms = header("Fila-Retry-After-Ms")
                        .and_then(|ms| ms.parse().ok())
                        .unwrap_or(0)
                        .max(100);
                    println!("refused {text} with {code}, again in {ms} ms");
                    sleep(Duration::from_millis(ms)).await;
                }
                Some(_) => {
                    return Err(format!(
                        "{text}: refused: {}",
                        String::from_utf8_lossy(&reply.payload)
                    )
                    .into());
                }
            }
        }
    }
}
