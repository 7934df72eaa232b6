package helm

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const everything = `
existingSecret: shop
image: {digest: sha256:0123}
imagePullSecrets: [{name: registry}]
config:
  sources: {shop: {database_file: /run/secrets/rowrelay/database, retention: 0s}}
  sinks: {events: {type: plugin, command: [/plugins/events]}}
  admin: {reader_token_file: /run/secrets/rowrelay/reader, tls: {cert_file: /run/secrets/rowrelay/tls.crt, key_file: /run/secrets/rowrelay/tls.key}}
extraVolumes: [{name: plugins, persistentVolumeClaim: {claimName: plugins, readOnly: true}}]
extraVolumeMounts: [{name: plugins, mountPath: /plugins, readOnly: true}]
podSecurityContext: {runAsUser: 1000, fsGroup: 1000}
securityContext: {readOnlyRootFilesystem: false}
migrate: false
env: [{name: PASSWORD, value: secret}]
podAnnotations: {team: shop}
podLabels: {team: shop}
nodeSelector: {disk: fast}
tolerations: [{key: shop, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: shop, operator: Exists}]}]}}}
priorityClassName: shop
podMonitor: {enabled: true, labels: {release: prometheus}, tlsConfig: {ca: {secret: {name: shop, key: ca.crt}}}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboard: {enabled: true}
`

// oneSink configures one sink, because an installation needs at least one.
const oneSink = "config: {sinks: {lines: {type: stdout}}}\n"

// Kubernetes knows every field of each manifest, and the selectors select the relays.
func TestChartIsValid(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		release, values string
		kinds           []string
		in              []string // texts that the manifests contain
	}{
		"a database's address": {"shop", oneSink + "secrets: {database: 'postgres://shop@db/shop'}",
			[]string{"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret"},
			[]string{"image: ghcr.io/rowrelay/rowrelay:0.1.0", "secretName: shop-rowrelay\n", "name: migrate", "type: stdout"}},
		"a release name that contains the chart's name": {"rowrelay", oneSink + "existingSecret: shop",
			[]string{"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget"}, []string{"secretName: shop\n", "name: rowrelay\n"}},
		"no optional objects": {"shop", oneSink + "existingSecret: shop\npodDisruptionBudget: {enabled: false}\nnetworkPolicy: {enabled: false}",
			[]string{"ConfigMap", "Deployment"}, nil},
		"the image with plug-ins": {"shop", oneSink + "existingSecret: shop\nimage: {plugins: true, digest: sha256:0123}",
			[]string{"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget"}, []string{"image: ghcr.io/rowrelay/rowrelay:0.1.0-plugins\n"}},
		"everything": {"shop", everything,
			[]string{"ConfigMap", "ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "PrometheusRule"},
			[]string{"image: ghcr.io/rowrelay/rowrelay@sha256:0123", "retention: 0s", "scheme: HTTPS", "scheme: https\n", "key: reader", "key: ca.crt", "mountPath: /plugins", "claimName: plugins", "fsGroup: 1000", "readOnlyRootFilesystem: false", "alert: RowrelayGone", "team: shop", "release: prometheus", "name: PASSWORD"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents, text, err := render("rowrelay", test.release, test.values)
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, document := range documents {
				kinds = append(kinds, decode(t, document))
			}
			if slices.Sort(kinds); !slices.Equal(kinds, test.kinds) {
				t.Errorf("the kinds are %v, want %v", kinds, test.kinds)
			}
			for _, want := range test.in {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
			checkSelected(t, documents)
		})
	}
}

func TestChartSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"existingSecret: shop": "set config.sinks",
		oneSink:                "set existingSecret to a Secret of yours, or secrets.database",
		"{existingSecret: shop, podMonitor: {enabled: true}, config: {sinks: {lines: {type: stdout}}, admin: {reader_token: secret}}}": "set config.admin.reader_token_file",
	} {
		if _, _, err := render("rowrelay", "shop", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s the chart's error is %v, want %q", values, err, want)
		}
	}
}

// TestChartCombinations renders each pair of choices. Kubernetes must know every field, each mounted volume
// must exist, and the part that belongs to a choice must appear only if the choice is made.
func TestChartCombinations(t *testing.T) {
	t.Parallel()
	choices := []struct{ name, values, shows string }{
		{"TLS", "config: {admin: {tls: {cert_file: /run/secrets/rowrelay/tls.crt, key_file: /run/secrets/rowrelay/tls.key}}}", "scheme: HTTPS"},
		{"a reader's token", "config: {admin: {reader_token_file: /run/secrets/rowrelay/reader}}", "reader_token_file: /run/secrets/rowrelay/reader"},
		{"a pod monitor", "podMonitor: {enabled: true}", "kind: PodMonitor"},
		{"no migration", "migrate: false", ""},
		{"plug-ins", "{extraVolumes: [{name: plugins, emptyDir: {}}], extraVolumeMounts: [{name: plugins, mountPath: /plugins}]}", "mountPath: /plugins"},
		{"users of its own", "podSecurityContext: {runAsUser: 1000}", "runAsUser: 1000"},
	}
	for chosen := range 1 << len(choices) {
		values := map[string]any{}
		for i, choice := range append([]struct{ name, values, shows string }{{"", oneSink + "existingSecret: shop", ""}}, choices...) {
			if i > 0 && chosen&(1<<(i-1)) == 0 {
				continue
			}
			given, err := chartutil.ReadValues([]byte(choice.values))
			if err != nil {
				t.Fatal(err)
			}
			values = chartutil.MergeTables(given.AsMap(), values)
		}
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		documents, rendered, err := render("rowrelay", "shop", string(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, document := range documents {
			if decode(t, document) == "Deployment" {
				checkVolumes(t, document)
			}
		}
		for i, choice := range choices {
			if shown := strings.Contains(rendered, choice.shows); choice.shows != "" && shown != (chosen&(1<<i) != 0) {
				t.Errorf("%q is in the manifests: %t, with\n%s", choice.shows, shown, text)
			}
		}
		if token := strings.Contains(rendered, "authorization:"); token != (chosen&6 == 6) {
			t.Errorf("the pod monitor has the token: %t, with\n%s", token, text)
		}
	}
}

// At an upgrade the chart reads the user's Secret from the cluster. If the Secret has changed, the pods' template differs.
func TestChangedSecretRestartsRelays(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, password := range []string{"b25l", "dHdv", "b25l"} {
		cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch r.URL.Path {
			case "/api/v1":
				fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"secrets","kind":"Secret","namespaced":true,"verbs":["get"]}]}`)
			case "/api/v1/namespaces/shop/secrets/shop":
				fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"shop","namespace":"shop"},"data":{"database":%q}}`, password)
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		chart, err := loader.Load("rowrelay")
		if err != nil {
			t.Fatal(err)
		}
		given, err := chartutil.ReadValues([]byte(oneSink + "existingSecret: shop"))
		if err != nil {
			t.Fatal(err)
		}
		all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "shop", Namespace: "shop", IsUpgrade: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		files, err := engine.RenderWithClient(chart, all, &rest.Config{Host: cluster.URL})
		cluster.Close()
		if err != nil {
			t.Fatal(err)
		}
		text := files["rowrelay/templates/relays.yaml"]
		if before, known := seen[password]; known && before != text {
			t.Error("the same Secret results in another template")
		}
		seen[password] = text
	}
	if seen["b25l"] == seen["dHdv"] {
		t.Error("a changed Secret results in the same template")
	}
}

// checkVolumes checks that each mount has its volume. It also checks that no user is set that OpenShift would refuse,
// unless the values set one.
func checkVolumes(t *testing.T, document string) {
	t.Helper()
	var deployment appsv1.Deployment
	if err := yaml.Unmarshal([]byte(document), &deployment); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, mount := range container.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }) {
				t.Errorf("%s mounts the volume %s, which doesn't exist", container.Name, mount.Name)
			}
		}
		if own := container.SecurityContext; own == nil || own.RunAsUser != nil || own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation {
			t.Errorf("%s has the security context %+v", container.Name, own)
		}
	}
	if own := pod.SecurityContext; own.FSGroup != nil || own.RunAsNonRoot == nil || !*own.RunAsNonRoot || own.RunAsUser != nil && *own.RunAsUser != 1000 {
		t.Errorf("the pod has the security context %+v", own)
	}
}

// Kubernetes knows every field of the plain manifests.
func TestPlainManifestsAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range split(string(content)) {
			decode(t, document)
		}
	}
}

// The chart and the manifests of a release name its image by the digest.
func TestReleaseNamesImageByDigest(t *testing.T) {
	t.Parallel()
	directory, digest, pluginsDigest := t.TempDir(), strings.Repeat("0123456789abcdef", 4), strings.Repeat("a", 64)
	digests := filepath.Join(directory, "digests.txt")
	lines := digest + "  ghcr.io/rowrelay/rowrelay:1.2.3\n" + strings.Repeat("f", 64) + "  ghcr.io/rowrelay/rowrelay:latest\n" + pluginsDigest + "  ghcr.io/rowrelay/rowrelay:1.2.3-plugins\n"
	if err := os.WriteFile(digests, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "../../.ci/pin", "1.2.3", digests, directory).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	_, text, err := render(filepath.Join(directory, "rowrelay-1.2.3.tgz"), "shop", oneSink+"existingSecret: shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubernetes-relays.yaml", "kubernetes-sidecar.yaml"} {
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		text += string(content)
	}
	images := 0
	for line := range strings.Lines(text) {
		if strings.Contains(line, "image: ") && !strings.Contains(line, "shop:latest") {
			if images++; !strings.Contains(line, "@sha256:"+digest) {
				t.Errorf("the image isn't pinned: %s", line)
			}
		}
	}
	if images != 6 || !strings.Contains(text, `app.kubernetes.io/version: "1.2.3"`) || !strings.Contains(text, "helm.sh/chart: rowrelay-1.2.3") {
		t.Errorf("found %d images, want 6, or the version is missing, in\n%s", images, text)
	}
	_, text, err = render(filepath.Join(directory, "rowrelay-1.2.3.tgz"), "shop", oneSink+"existingSecret: shop\nimage: {plugins: true}")
	if err != nil || strings.Count(text, "image: ghcr.io/rowrelay/rowrelay@sha256:"+pluginsDigest) != 2 {
		t.Errorf("with plug-ins the image isn't pinned: %v\n%s", err, text)
	}
	if err := exec.CommandContext(t.Context(), "../../.ci/pin", "1.2.4", digests, directory).Run(); err == nil {
		t.Error(".ci/pin accepted a release that has no image")
	}
}

// render returns the manifests that `helm install release CHART --values …` would apply.
func render(from, release, values string) (documents []string, text string, err error) {
	chart, err := loader.Load(from)
	if err != nil {
		return nil, "", err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, "", err
	}
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: release, Namespace: "shop", IsInstall: true}, nil)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	for name, content := range files {
		if strings.HasSuffix(name, ".yaml") {
			documents = append(documents, split(content)...)
		}
		text += content
	}
	return documents, text, err
}

func split(content string) (documents []string) {
	for document := range strings.SplitSeq("\n"+content, "\n---\n") {
		if strings.TrimSpace(document) != "" {
			documents = append(documents, document)
		}
	}
	return documents
}

// decode decodes a document into the type of its kind, and returns the kind. Of the Prometheus
// operator's documents it checks only the form.
func decode(t *testing.T, document string) string {
	t.Helper()
	var kind struct{ Kind string }
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	objects := map[string]any{
		"ConfigMap": &corev1.ConfigMap{}, "Secret": &corev1.Secret{}, "Deployment": &appsv1.Deployment{},
		"PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "NetworkPolicy": &networkingv1.NetworkPolicy{},
		"PodMonitor": &map[string]any{}, "PrometheusRule": &map[string]any{},
	}
	object := objects[kind.Kind]
	if object == nil {
		t.Fatalf("the kind %q is unknown: %s", kind.Kind, document)
	}
	if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
		t.Errorf("%v in\n%s", err, document)
	}
	return kind.Kind
}

// checkSelected checks that all selectors select the relays' pods. A budget or a policy that
// selects none would protect nothing, without any warning.
func checkSelected(t *testing.T, documents []string) {
	t.Helper()
	var labels map[string]any
	selectors := map[string]any{}
	for _, document := range documents {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		at := func(path ...string) any {
			var value any = object
			for _, name := range path {
				inner, _ := value.(map[string]any)
				value = inner[name]
			}
			return value
		}
		for _, path := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "podSelector", "matchLabels"}} {
			if selector := at(path...); selector != nil {
				selectors[fmt.Sprint(at("kind"), " ", path)] = selector
			}
		}
		if at("kind") == "Deployment" {
			labels, _ = at("spec", "template", "metadata", "labels").(map[string]any)
		}
	}
	if len(selectors) == 0 || labels == nil {
		t.Fatal("found no selector, or no Deployment with labels")
	}
	for of, selector := range selectors {
		for name, value := range selector.(map[string]any) {
			if !reflect.DeepEqual(labels[name], value) {
				t.Errorf("the %s selects pods with %s: %v, but the relays' pods have %v", of, name, value, labels)
			}
		}
	}
}
