import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfig;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.ConfigMapLock;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.Lock;
import java.time.Duration;

/** Takes part in a leader election by fabric8's code and does nothing else: KIND NAMESPACE LOCK IDENTITY. */
public final class Elector {
  public static void main(String[] arguments) {
    Lock lock = arguments[0].equals("configmap")
        ? new ConfigMapLock(arguments[1], arguments[2], arguments[3])
        : new LeaseLock(arguments[1], arguments[2], arguments[3]);
    // By default a request that is answered with 503 is tried ten times more, over 100 s: who leads does not notice before.
    Config connection = new ConfigBuilder().withRequestRetryBackoffLimit(1).build();
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(connection).build()) {
      while (true) {
        LeaderElectionConfig config = new LeaderElectionConfigBuilder()
            .withName("elector")
            .withLock(lock)
            .withLeaseDuration(Duration.ofSeconds(15))
            .withRenewDeadline(Duration.ofSeconds(10))
            .withRetryPeriod(Duration.ofSeconds(2))
            .withReleaseOnCancel(true)
            .withLeaderCallbacks(new LeaderCallbacks(
                () -> say("leading"), () -> say("lost"), leader -> System.err.println("the leader is " + leader)))
            .build();
        // Returns when the lead is lost.
        client.leaderElector().withConfig(config).build().run();
      }
    }
  }

  private static void say(String what) {
    System.out.println(what);
    System.out.flush();
  }
}
