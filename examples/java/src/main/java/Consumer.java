import io.nats.client.Connection;
import io.nats.client.ConnectionListener.Events;
import io.nats.client.Dispatcher;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.support.JsonParser;
import io.nats.client.support.JsonValue;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * Works on the messages of a queue of fila with jnats alone.
 *
 * <pre>java Consumer QUEUE</pre>
 *
 * NATS_URL is the address of NATS. An interrupt stops it gracefully. It survives
 * restarts of fila and NATS: it registers again, and repeats an ack until it is
 * answered.
 */
public final class Consumer {
  private static final String NAME = "java-1";
  private static final int MAX_IN_FLIGHT = 16;
  private static final Duration TTL = Duration.ofSeconds(30);

  private final Connection nc;
  private final String queue;
  private final CountDownLatch registered = new CountDownLatch(1);
  private volatile long leaseMs; // the visibility timeout

  private Consumer(Connection nc, String queue) {
    this.nc = nc;
    this.queue = queue;
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 1) {
      System.err.println("usage: java Consumer QUEUE");
      System.exit(2);
    }
    Semaphore wake = new Semaphore(0); // a reconnect, or the end
    CountDownLatch stopping = new CountDownLatch(1);
    Thread main = Thread.currentThread();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      stopping.countDown();
      wake.release();
      try {
        main.join();
      } catch (InterruptedException e) {
        return;
      }
      Runtime.getRuntime().halt(0); // otherwise the signal would set the exit code
    }));

    Options options = new Options.Builder()
        .server(System.getenv("NATS_URL"))
        .maxReconnects(-1)
        .reconnectWait(Duration.ofMillis(100))
        .connectionListener((connection, event) -> {
          if (event == Events.RESUBSCRIBED) { // reconnected, and subscribed again
            wake.release();
          }
        })
        .build();
    try (Connection nc = Nats.connect(options)) {
      new Consumer(nc, args[0]).run(wake, stopping);
    }
  }

  private void run(Semaphore wake, CountDownLatch stopping) throws Exception {
    // Subscribe first, then register: a delivery without a subscriber ends a registration.
    ExecutorService tasks = Executors.newCachedThreadPool(); // at most MAX_IN_FLIGHT of them
    Dispatcher dispatcher = nc.createDispatcher(message -> tasks.execute(() -> handle(message)));
    dispatcher.subscribe("fila.deliver." + NAME + "." + queue);
    nc.flush(Duration.ofSeconds(5));
    register();
    System.out.println("registered " + NAME);

    // Register again in good time, and at once after a reconnect.
    Duration wait = TTL.dividedBy(3);
    while (true) {
      wake.tryAcquire(wait.toMillis(), TimeUnit.MILLISECONDS);
      wake.drainPermits();
      if (stopping.getCount() == 0) {
        break;
      }
      wait = TTL.dividedBy(3);
      try {
        register();
      } catch (IOException e) {
        System.err.println("register: " + e.getMessage());
        wait = Duration.ofSeconds(1);
      }
    }

    // Leave, so that no more deliveries come; let the received ones finish.
    try {
      ask("{\"leave\":true}");
    } catch (IOException e) {
      System.err.println("leave: " + e.getMessage());
    }
    dispatcher.drain(Duration.ofSeconds(10)).get();
    tasks.shutdown();
    tasks.awaitTermination(1, TimeUnit.HOURS);
    nc.flush(Duration.ofSeconds(5));
  }

  private void register() throws Exception {
    JsonValue reply = ask("{\"max_in_flight\":" + MAX_IN_FLIGHT + ",\"ttl_ms\":" + TTL.toMillis() + "}");
    leaseMs = reply.map.get("visibility_timeout_ms").number.longValue();
    registered.countDown();
  }

  /** Sends a request to fila.consumer and reads the reply, which may be an error. */
  private JsonValue ask(String request) throws Exception {
    Message reply = request("fila.consumer." + NAME + "." + queue, request, Duration.ofSeconds(5));
    if (reply == null) {
      throw new IOException("nobody is there, or no reply");
    }
    if (errorCode(reply) != null) {
      throw new IOException(text(reply));
    }
    return JsonParser.parse(reply.getData());
  }

  /** Returns null without responders, without a reply in time, and without a connection. */
  private Message request(String subject, String payload, Duration timeout) throws InterruptedException {
    try {
      return nc.request(subject, bytes(payload), timeout);
    } catch (IllegalStateException e) {
      return null;
    }
  }

  /** Shows the ways in which a message can end. */
  private void handle(Message message) {
    String attempt = header(message, "Fila-Attempt");
    String todo = Objects.requireNonNullElse(header(message, "todo"), "");
    boolean first = "1".equals(attempt);
    try {
      if (todo.equals("hopeless")) {
        say("terminated", message, "");
        answer(message, "+TERM nothing will help"); // to the dead letter queue
      } else if (todo.equals("fail") && first) {
        // With an error, for on_failure and for people.
        say("nacked", message, ": with an error");
        answer(message, "-NAK {\"error\":\"no luck today\",\"code\":\"luck\"}");
      } else if (todo.equals("later") && first) {
        say("nacked", message, ": with a delay");
        answer(message, "-NAK 300ms");
      } else if (todo.equals("busy") && first) {
        // The provider said Retry-After: tell fila, which keeps others away too.
        say("nacked", message, ": with Retry-After");
        answer(message, "-NAK {\"error\":\"provider is busy\",\"code\":\"429\",\"delay\":\"300ms\",\"retry_after_ms\":300}");
      } else {
        if (todo.equals("slow")) {
          slowly(message);
        }
        ack(message);
      }
    } catch (InterruptedException | IllegalStateException e) {
      System.err.println(text(message) + ": " + e.getMessage());
    }
  }

  private void answer(Message message, String text) {
    nc.publish(message.getReplyTo(), bytes(text));
  }

  /** Works longer than the visibility timeout and extends the lease. */
  private void slowly(Message message) throws InterruptedException {
    registered.await(); // the delivery may be here before the reply
    for (int i = 0; i < 6; i++) {
      Thread.sleep(leaseMs / 3);
      answer(message, "+WPI");
    }
  }

  /**
   * Finishes a message for good: repeats the ack until fila has answered.
   * (An empty publish is enough where a message may come again now and then.)
   */
  private void ack(Message message) throws InterruptedException {
    while (true) {
      Message reply = request(message.getReplyTo(), "", Duration.ofSeconds(2));
      String code = reply == null ? null : errorCode(reply);
      if (reply == null || "500".equals(code) || "503".equals(code)) {
        Thread.sleep(100); // fila or NATS is away
      } else if (code != null) { // 409: the lease is lost, or an earlier try arrived
        System.out.println("refused ack of " + text(message) + ": " + text(reply));
        return;
      } else {
        say("acked", message, "");
        return;
      }
    }
  }

  private static void say(String what, Message message, String how) {
    System.out.println(what + " " + text(message) + ", attempt " + header(message, "Fila-Attempt") + how);
  }

  private static String errorCode(Message message) {
    return header(message, "Nats-Service-Error-Code");
  }

  /** A message without headers has null instead of them. */
  private static String header(Message message, String name) {
    return message.hasHeaders() ? message.getHeaders().getFirst(name) : null;
  }

  private static String text(Message message) {
    return new String(message.getData(), StandardCharsets.UTF_8);
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
