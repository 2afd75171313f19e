import static java.nio.charset.StandardCharsets.UTF_8;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.Namespaced;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.ObjectMetaBuilder;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.client.CustomResource;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.model.annotation.Group;
import io.fabric8.kubernetes.model.annotation.Version;
import io.javaoperatorsdk.operator.Operator;
import io.javaoperatorsdk.operator.api.config.LeaderElectionConfigurationBuilder;
import io.javaoperatorsdk.operator.api.monitoring.Metrics;
import io.javaoperatorsdk.operator.api.reconciler.Context;
import io.javaoperatorsdk.operator.api.reconciler.ControllerConfiguration;
import io.javaoperatorsdk.operator.api.reconciler.Reconciler;
import io.javaoperatorsdk.operator.api.reconciler.UpdateControl;
import io.javaoperatorsdk.operator.api.reconciler.Workflow;
import io.javaoperatorsdk.operator.api.reconciler.dependent.Dependent;
import io.javaoperatorsdk.operator.processing.dependent.kubernetes.CRUDKubernetesDependentResource;
import java.io.IOException;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Base64;
import java.util.Map;
import java.util.Objects;

/**
 * An ordinary operator, as anybody would write it with the Java Operator SDK: a ConfigMap and a Secret for each Website, as
 * dependents in the default workflow, which makes them before {@code reconcile} is called. It elects a leader, and knows
 * nothing of other replicas at work beside it.
 */
public class WebsiteOperator {
  static final Map<String, String> OPTIONS = System.getenv();
  static final String INSTANCE = OPTIONS.getOrDefault("INSTANCE", OPTIONS.getOrDefault("HOSTNAME", "website-operator"));

  public static void main(String[] arguments) {
    var lock =
        LeaderElectionConfigurationBuilder.aLeaderElectionConfiguration("website-operator")
            .withLeaseNamespace(OPTIONS.getOrDefault("LEADER_ELECTION_NAMESPACE", "default"))
            .withIdentity(INSTANCE)
            .build();
    var operator =
        new Operator(
            settings ->
                settings
                    .withLeaderElectionConfiguration(lock)
                    .withConcurrentReconciliationThreads(Integer.parseInt(OPTIONS.getOrDefault("CONCURRENCY", "4")))
                    .withMetrics(new Report()));
    operator.installShutdownHook(Duration.ofSeconds(10));
    operator.register(new WebsiteReconciler());
    operator.start();
  }

  @Workflow(dependents = {@Dependent(type = Content.class), @Dependent(type = Site.class)})
  @ControllerConfiguration(name = "website")
  public static class WebsiteReconciler implements Reconciler<Website> {
    @Override
    public UpdateControl<Website> reconcile(Website website, Context<Website> context) throws InterruptedException {
      Thread.sleep(website.getSpec().workMillis);
      var status = new WebsiteStatus();
      status.observedGeneration = website.getMetadata().getGeneration();
      status.reconciledBy = INSTANCE;
      if (status.equals(website.getStatus())) {
        return UpdateControl.noUpdate();
      }
      website.setStatus(status);
      return UpdateControl.patchStatus(website);
    }
  }

  public static class Content extends CRUDKubernetesDependentResource<ConfigMap, Website> {
    @Override
    protected ConfigMap desired(Website website, Context<Website> context) {
      var data = Map.of("index.html", website.getSpec().content);
      return new ConfigMapBuilder().withMetadata(beside(website)).withData(data).build();
    }
  }

  public static class Site extends CRUDKubernetesDependentResource<Secret, Website> {
    @Override
    protected Secret desired(Website website, Context<Website> context) {
      var site = Base64.getEncoder().encodeToString(website.getMetadata().getName().getBytes(UTF_8));
      return new SecretBuilder().withMetadata(beside(website)).withData(Map.of("site", site)).build();
    }
  }

  static ObjectMeta beside(Website website) {
    var metadata = website.getMetadata();
    return new ObjectMetaBuilder().withNamespace(metadata.getNamespace()).withName(metadata.getName()).build();
  }

  @Group("web.example.com")
  @Version("v1")
  public static class Website extends CustomResource<WebsiteSpec, WebsiteStatus> implements Namespaced {}

  public static class WebsiteSpec {
    public String content = "";
    public long workMillis;
  }

  public static class WebsiteStatus {
    public Long observedGeneration;
    public String reconciledBy;

    @Override
    public boolean equals(Object other) {
      return other instanceof WebsiteStatus that
          && Objects.equals(observedGeneration, that.observedGeneration)
          && Objects.equals(reconciledBy, that.reconciledBy);
    }

    @Override
    public int hashCode() {
      return Objects.hash(observedGeneration, reconciledBy);
    }
  }

  /** Tells a collector when work on an object starts and ends. It is all that is special about this operator. */
  static class Report implements Metrics {
    final HttpClient client = HttpClient.newBuilder().proxy(ProxySelector.of(null)).build();
    final ThreadLocal<String> outcome = new ThreadLocal<>();

    @Override
    public void reconciliationExecutionStarted(HasMetadata website, Map<String, Object> metadata) {
      outcome.set("done");
      post("start", website, "");
    }

    @Override
    public void failedReconciliation(HasMetadata website, Exception error, Map<String, Object> metadata) {
      outcome.set(isAlreadyExists(error) ? "alreadyExists" : "failed");
    }

    @Override
    public void reconciliationExecutionFinished(HasMetadata website, Map<String, Object> metadata) {
      post("end", website, ",\"outcome\":\"%s\"".formatted(outcome.get()));
    }

    /** Whether an object was to be created that exists. What a dependent throws is kept as the cause of another, or beside it. */
    static boolean isAlreadyExists(Throwable error) {
      for (var at = error; at != null; at = at.getCause()) {
        if (at instanceof KubernetesClientException refused && refused.getStatus() != null) {
          return "AlreadyExists".equals(refused.getStatus().getReason());
        }
        for (var beside : at.getSuppressed()) {
          if (isAlreadyExists(beside)) return true;
        }
      }
      return false;
    }

    void post(String phase, HasMetadata website, String more) {
      if (!OPTIONS.containsKey("COLLECTOR")) return;
      var metadata = website.getMetadata();
      var body =
          "{\"phase\":\"%s\",\"uid\":\"%s\",\"generation\":%d,\"instance\":\"%s\"%s}"
              .formatted(phase, metadata.getUid(), metadata.getGeneration(), INSTANCE, more);
      var request =
          HttpRequest.newBuilder(URI.create(OPTIONS.get("COLLECTOR")))
              .header("Content-Type", "application/json")
              .timeout(Duration.ofSeconds(10))
              .POST(BodyPublishers.ofString(body))
              .build();
      try {
        var status = client.send(request, BodyHandlers.discarding()).statusCode();
        if (status / 100 != 2) throw new IllegalStateException("report to the collector: " + status);
      } catch (IOException | InterruptedException error) {
        throw new IllegalStateException("report to the collector", error);
      }
    }
  }
}
