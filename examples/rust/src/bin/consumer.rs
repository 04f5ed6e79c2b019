//! Works on the messages of a queue of fila with async-nats alone.
//!
//!     cargo run --bin consumer QUEUE
//!
//! NATS_URL is the address of NATS. An interrupt stops it gracefully. It survives
//! restarts of fila and NATS: it registers again, and repeats an ack until it is
//! answered.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use std::{env, process};

use async_nats::{Client, ConnectOptions, Event, Message, Request};
use futures_util::StreamExt;
use serde_json::{json, Value};
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, Instant};

const NAME: &str = "rust-1";
const MAX_IN_FLIGHT: u64 = 16;
const TTL: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [queue] = args.as_slice() else {
        eprintln!("usage: consumer QUEUE");
        process::exit(2);
    };
    let connected = Arc::new(Notify::new());
    let told = connected.clone();
    let nc = ConnectOptions::new()
        .reconnect_delay_callback(|_| Duration::from_millis(100))
        .event_callback(move |event| {
            if event == Event::Connected {
                told.notify_one();
            }
            async {}
        })
        .connect(env::var("NATS_URL")?)
        .await?;
    let consumer = Arc::new(Consumer {
        nc: nc.clone(),
        subject: format!("fila.consumer.{NAME}.{queue}"),
        lease_ms: AtomicU64::new(0),
    });

    // Subscribe first, then register: a delivery without a subscriber ends a registration.
    let mut messages = nc.subscribe(format!("fila.deliver.{NAME}.{queue}")).await?;
    nc.flush().await?;
    consumer.register().await?;
    println!("registered {NAME}");

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut tasks = JoinSet::new(); // at most MAX_IN_FLIGHT of them
    let mut renewal = JoinSet::new(); // one at most; the next one is due then
    let mut next = Instant::now() + TTL / 3;
    loop {
        tokio::select! {
            Some(msg) = messages.next() => {
                let consumer = consumer.clone();
                tasks.spawn(async move { consumer.handle(msg).await });
            }
            Some(done) = tasks.join_next() => report(done?),
            // Register again in good time, and at once after a reconnect.
            _ = connected.notified() => next = Instant::now(),
            _ = sleep_until(next), if renewal.is_empty() => {
                let consumer = consumer.clone();
                renewal.spawn(async move { consumer.register().await });
            }
            Some(done) = renewal.join_next() => {
                let wait = if done.as_ref().is_ok_and(|d| d.is_ok()) { TTL / 3 } else { Duration::from_secs(1) };
                report(done?);
                next = Instant::now() + wait;
            }
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
    }

    // Leave, so that no more deliveries come; let the received ones finish.
    report(consumer.ask(json!({"leave": true})).await.map(|_| ()));
    // unsubscribe keeps what has come, all of it before the reply to leaving; drain
    // would wait until the next ping of the connection, up to a minute.
    messages.unsubscribe().await?;
    while let Some(msg) = messages.next().await {
        let consumer = consumer.clone();
        tasks.spawn(async move { consumer.handle(msg).await });
    }
    while let Some(done) = tasks.join_next().await {
        report(done?);
    }
    nc.flush().await?;
    Ok(())
}

fn report(outcome: Outcome<()>) {
    if let Err(error) = outcome {
        eprintln!("{error}");
    }
}

struct Consumer {
    nc: Client,
    subject: String,
    lease_ms: AtomicU64, // the visibility timeout; 0 until the reply to the registration
}

impl Consumer {
    async fn register(&self) -> Outcome<()> {
        let request = json!({"max_in_flight": MAX_IN_FLIGHT, "ttl_ms": TTL.as_millis() as u64});
        let reply = self.ask(request).await?;
        let lease = reply["visibility_timeout_ms"]
            .as_u64()
            .ok_or("a reply without visibility_timeout_ms")?;
        self.lease_ms.store(lease, Ordering::Relaxed);
        Ok(())
    }

    /// Sends a request to fila.consumer and reads the reply, which may be an error.
    async fn ask(&self, request: Value) -> Outcome<Value> {
        let reply = self
            .request(self.subject.clone(), request.to_string(), 5)
            .await?;
        if error_code(&reply).is_some() {
            return Err(text(&reply).into());
        }
        Ok(serde_json::from_slice(&reply.payload)?)
    }

    async fn request(&self, subject: String, payload: String, seconds: u64) -> Outcome<Message> {
        let request = Request::new()
            .payload(payload.into())
            .timeout(Some(Duration::from_secs(seconds)));
        Ok(self.nc.send_request(subject, request).await?)
    }

    /// Shows the ways in which a message can end.
    async fn handle(&self, msg: Message) -> Outcome<()> {
        let attempt = header(&msg, "Fila-Attempt").unwrap_or_default();
        let say = |what: &str, how: &str| println!("{what} {}, attempt {attempt}{how}", text(&msg));
        match (header(&msg, "todo").unwrap_or_default(), attempt) {
            ("hopeless", _) => {
                say("terminated", "");
                self.answer(&msg, "+TERM nothing will help").await // to the dead letter queue
            }
            ("fail", "1") => {
                // With an error, for on_failure and for people.
                say("nacked", ": with an error");
                self.answer(&msg, r#"-NAK {"error":"no luck today","code":"luck"}"#)
                    .await
            }
            ("later", "1") => {
                say("nacked", ": with a delay");
                self.answer(&msg, "-NAK 300ms").await
            }
            ("busy", "1") => {
                // The provider said Retry-After: tell fila, which keeps others away too.
                say("nacked", ": with Retry-After");
                let details = r#"{"error":"provider is busy","code":"429","delay":"300ms","retry_after_ms":300}"#;
                self.answer(&msg, &format!("-NAK {details}")).await
            }
            (todo, _) => {
                if todo == "slow" {
                    self.slowly(&msg).await?;
                }
                self.ack(&msg).await
            }
        }
    }

    async fn answer(&self, msg: &Message, text: &str) -> Outcome<()> {
        let reply = msg
            .reply
            .clone()
            .ok_or("a delivery without a reply subject")?;
        Ok(self.nc.publish(reply, text.to_owned().into()).await?)
    }

    /// Works longer than the visibility timeout and extends the lease.
    async fn slowly(&self, msg: &Message) -> Outcome<()> {
        while self.lease_ms.load(Ordering::Relaxed) == 0 {
            sleep(Duration::from_millis(10)).await; // the delivery may be here before the reply
        }
        for _ in 0..6 {
            sleep(Duration::from_millis(
                self.lease_ms.load(Ordering::Relaxed) / 3,
            ))
            .await;
            self.answer(msg, "+WPI").await?;
        }
        Ok(())
    }

    /// Finishes a message for good: repeats the ack until fila has answered.
    /// (An empty publish is enough where a message may come again now and then.)
    async fn ack(&self, msg: &Message) -> Outcome<()> {
        let subject = msg
            .reply
            .as_ref()
            .ok_or("a delivery without a reply subject")?;
        loop {
            let Ok(reply) = self.request(subject.to_string(), String::new(), 2).await else {
                sleep(Duration::from_millis(100)).await; // no responders, no reply: fila or NATS is away
                continue;
            };
            match error_code(&reply) {
                Some("500" | "503") => sleep(Duration::from_millis(100)).await,
                // 409: the lease is lost, or an earlier try arrived.
                Some(_) => {
                    println!("refused ack of {}: {}", text(msg), text(&reply));
                    return Ok(());
                }
                None => {
                    println!(
                        "acked {}, attempt {}",
                        text(msg),
                        header(msg, "Fila-Attempt").unwrap_or_default()
                    );
                    return Ok(());
                }
            }
        }
    }
}

fn text(msg: &Message) -> String {
    String::from_utf8_lossy(&msg.payload).into_owned()
}

fn header<'a>(msg: &'a Message, name: &str) -> Option<&'a str> {
    msg.headers.as_ref()?.get(name).map(|value| value.as_str())
}

fn error_code(msg: &Message) -> Option<&str> {
    header(msg, "Nats-Service-Error-Code")
}
