import io.nats.client.Connection;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.impl.Headers;
import io.nats.client.impl.NatsMessage;
import io.nats.client.support.JsonParser;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Publishes messages to a queue of fila with jnats alone, and waits for the
 * confirmation of each.
 *
 * <pre>java Producer QUEUE [COUNT [TODO]]</pre>
 *
 * NATS_URL is the address of NATS. It survives restarts of fila and NATS: whatever is
 * not confirmed is published again with the same Nats-Msg-Id, so that it is
 * stored once.
 */
public final class Producer {
  /** Tells the example consumers what to show with a message. */
  private static final List<String> TODO = List.of("ack", "fail", "later", "busy", "slow", "hopeless");

  public static void main(String[] args) throws Exception {
    if (args.length == 0) {
      System.err.println("usage: java Producer QUEUE [COUNT [TODO]]");
      System.exit(2);
    }
    String queue = args[0];
    List<String> todo = args.length > 2 ? List.of(args[2]) : TODO;
    int count = args.length > 1 ? Integer.parseInt(args[1]) : todo.size();

    Options options = new Options.Builder()
        .server(System.getenv("NATS_URL"))
        .maxReconnects(-1)
        .reconnectWait(Duration.ofMillis(100))
        .build();
    // Several at a time: fila writes messages that arrive together in one commit.
    ExecutorService publishers = Executors.newFixedThreadPool(16);
    try (Connection nc = Nats.connect(options)) {
      List<Future<?>> published = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        String text = "message " + i;
        Headers headers = new Headers();
        headers.add("tenant", i % 2 == 0 ? "acme" : "globex");
        headers.add("Nats-Msg-Id", "java-" + i);
        headers.add("todo", todo.get(i % todo.size()));
        published.add(publishers.submit(() -> publish(nc, queue, text, headers)));
      }
      for (Future<?> one : published) {
        one.get();
      }
    } finally {
      publishers.shutdownNow();
    }
  }

  /** Returns when the message is on disk, or throws when it never can be. */
  private static Void publish(Connection nc, String queue, String text, Headers headers) throws Exception {
    Message message = NatsMessage.builder()
        .subject("fila.enqueue." + queue)
        .headers(headers)
        .data(text, StandardCharsets.UTF_8)
        .build();
    while (true) {
      Message reply;
      try {
        reply = nc.request(message, Duration.ofSeconds(2));
      } catch (IllegalStateException e) {
        System.err.println(text + ": " + e.getMessage() + ", again in 250 ms"); // reconnecting
        Thread.sleep(250);
        continue;
      }
      if (reply == null) { // at once without responders, else after the two seconds
        System.err.println(text + ": nobody is there, or no reply; again in 250 ms");
        Thread.sleep(250);
        continue;
      }
      String code = header(reply, "Nats-Service-Error-Code");
      if (code == null) {
        System.out.println("stored " + text + " as " + JsonParser.parse(reply.getData()).map.get("id").string);
        return null;
      }
      // 429: the queue is full. 503: fila is stopping. 500: perhaps stored.
      if (!List.of("429", "500", "503").contains(code)) {
        throw new Exception(text + ": refused: " + new String(reply.getData(), StandardCharsets.UTF_8));
      }
      String wait = header(reply, "Fila-Retry-After-Ms");
      long ms = Math.max(wait == null ? 0 : Long.parseLong(wait), 100);
      System.out.println("refused " + text + " with " + code + ", again in " + ms + " ms");
      Thread.sleep(ms);
    }
  }

  /** A message without headers has null instead of them. */
  private static String header(Message message, String name) {
    return message.hasHeaders() ? message.getHeaders().getFirst(name) : null;
  }
}
