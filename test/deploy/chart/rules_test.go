package chart

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// release is what is rendered at once, with what the rules ask about most.
type release struct {
	objects  []object
	config   config.Config
	pod      core.PodTemplateSpec
	selector *meta.LabelSelector
	replicas int32 // the least number
	claims   []core.PersistentVolumeClaim
	problems []string
}

func (r *release) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// judge holds rendered objects to the rules of this house and returns what breaks them.
func judge(objects []object, c config.Config) []string {
	r := &release{objects: objects, config: c}
	deployments, sets := of[*apps.Deployment](objects), of[*apps.StatefulSet](objects)
	scalers := of[*autoscaling.HorizontalPodAutoscaler](objects)
	if len(deployments)+len(sets) != 1 {
		return []string{"there is not exactly one workload"}
	}
	for _, d := range deployments {
		r.pod, r.selector = d.Spec.Template, d.Spec.Selector
		r.deployment(d, scalers)
	}
	for _, s := range sets {
		r.pod, r.selector, r.claims = s.Spec.Template, s.Spec.Selector, s.Spec.VolumeClaimTemplates
		r.statefulSet(s)
	}
	if len(r.pod.Spec.Containers) != 1 {
		return append(r.problems, "the pod has not exactly one container")
	}
	r.names()
	r.selectors()
	r.ports()
	r.probes()
	r.stop()
	r.memory()
	r.security()
	r.volumes()
	r.secrets()
	return r.problems
}

func (r *release) deployment(d *apps.Deployment, scalers []*autoscaling.HorizontalPodAutoscaler) {
	most := int32(1)
	switch {
	case len(scalers) > 0:
		h := scalers[0].Spec
		if d.Spec.Replicas != nil || h.ScaleTargetRef.Kind != "Deployment" || h.ScaleTargetRef.Name != d.Name || h.MinReplicas == nil {
			r.problem("the autoscaler and the workload do not fit together")
			return
		}
		r.replicas, most = *h.MinReplicas, h.MaxReplicas
		if _, ok := r.pod.Spec.Containers[0].Resources.Requests[core.ResourceCPU]; !ok {
			r.problem("the autoscaler needs a request for CPU")
		}
	case d.Spec.Replicas != nil:
		r.replicas, most = *d.Spec.Replicas, *d.Spec.Replicas
	}
	shared := r.config.State.Redis.Used()
	if most > 1 && !shared {
		r.problem("%d replicas without state that they share", most)
	}
	if r.config.State.Path != "" {
		r.problem("state in a file needs a StatefulSet")
	}
	update := d.Spec.Strategy.RollingUpdate
	switch {
	case !shared && d.Spec.Strategy.Type != apps.RecreateDeploymentStrategyType:
		r.problem("an update would start a second gateway with state of its own")
	case shared && (update == nil || int(most)+update.MaxSurge.IntValue() > r.maxReplicas()):
		r.problem("an update would exceed max_replicas")
	}
}

func (r *release) maxReplicas() int { return r.config.Limit().Replicas }

func (r *release) statefulSet(s *apps.StatefulSet) {
	if s.Spec.Replicas == nil || *s.Spec.Replicas != 1 {
		r.problem("a StatefulSet has one replica")
	}
	r.replicas = 1
	if p := s.Spec.PersistentVolumeClaimRetentionPolicy; p == nil || p.WhenDeleted != "Retain" || p.WhenScaled != "Retain" {
		r.problem("the volume does not stay when the workload goes")
	}
	if !slices.ContainsFunc(of[*core.Service](r.objects), func(service *core.Service) bool { return service.Name == s.Spec.ServiceName }) {
		r.problem("serviceName %s is no Service", s.Spec.ServiceName)
	}
	if r.config.State.Path == "" {
		r.problem("a StatefulSet without state.path")
	}
}

// names: no two objects of a kind have one name, and each is in the namespace.
func (r *release) names() {
	seen := map[string]bool{}
	for _, o := range r.objects {
		if seen[o.kind+o.name] || o.name == "" || len(o.name) > 63 {
			r.problem("%s %q has no name of its own of at most 63 characters", o.kind, o.name)
		}
		seen[o.kind+o.name] = true
		if (o.value.GetNamespace() == "") != (o.kind == "ClusterSPIFFEID") {
			r.problem("%s %s is not in the namespace, or is of the cluster and in one", o.kind, o.name)
		}
	}
}

// selectors: each matches the pods.
func (r *release) selectors() {
	match := func(what string, selector *meta.LabelSelector) {
		s, err := meta.LabelSelectorAsSelector(selector)
		if err != nil || s.Empty() || !s.Matches(labels.Set(r.pod.Labels)) {
			r.problem("the selector of %s does not match the pods: %v", what, selector)
		}
	}
	match("the workload", r.selector)
	for _, service := range of[*core.Service](r.objects) {
		match("Service "+service.Name, &meta.LabelSelector{MatchLabels: service.Spec.Selector})
	}
	for _, p := range of[*policy.PodDisruptionBudget](r.objects) {
		match("the PodDisruptionBudget", p.Spec.Selector)
		if r.replicas < 2 {
			r.problem("a PodDisruptionBudget with %d replica", r.replicas)
		}
	}
	for _, n := range of[*networking.NetworkPolicy](r.objects) {
		match("the NetworkPolicy", &n.Spec.PodSelector)
	}
	for _, id := range of[*clusterSPIFFEID](r.objects) {
		match("the ClusterSPIFFEID", id.Spec.PodSelector)
		if id.Spec.NamespaceSelector == nil || len(id.Spec.NamespaceSelector.MatchLabels) == 0 {
			r.problem("the ClusterSPIFFEID is for all namespaces")
		}
	}
	for _, spread := range r.pod.Spec.TopologySpreadConstraints {
		match("a topologySpreadConstraint", spread.LabelSelector)
	}
}

// ports: containers have those of the configuration, and all others name theirs.
func (r *release) ports() {
	listen := r.config.Listen.WithDefaults()
	want := map[string]int32{}
	for name, address := range map[string]string{"public": listen.Public, "grpc": listen.GRPC, "uacp": listen.UACP, "metrics": listen.Metrics, "admin": listen.Admin} {
		host, text, _ := net.SplitHostPort(address)
		port, err := strconv.ParseInt(text, 10, 32)
		if err == nil && (host == "" || !net.ParseIP(host).IsLoopback()) {
			want[name] = int32(port)
		}
	}
	got := map[string]int32{}
	for _, port := range r.pod.Spec.Containers[0].Ports {
		got[port.Name] = port.ContainerPort
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.problem("the container has the ports %v, and the configuration %v", got, want)
	}
	served := map[string][]int32{}
	for _, service := range of[*core.Service](r.objects) {
		for _, port := range service.Spec.Ports {
			served[service.Name] = append(served[service.Name], port.Port)
			if _, ok := got[port.TargetPort.String()]; !ok {
				r.problem("Service %s: no container has the port %s", service.Name, port.TargetPort.String())
			}
			if public := service.Spec.Type != core.ServiceTypeClusterIP; public && (port.Name == "admin" || port.Name == "metrics") {
				r.problem("Service %s shows %s outside the cluster", service.Name, port.Name)
			}
		}
	}
	for _, n := range of[*networking.NetworkPolicy](r.objects) {
		for _, rule := range n.Spec.Ingress {
			for _, port := range rule.Ports {
				if _, ok := got[port.Port.String()]; !ok {
					r.problem("the NetworkPolicy allows the port %s, which no container has", port.Port.String())
				}
			}
		}
	}
	for _, route := range of[*gateway.TLSRoute](r.objects) {
		for _, backend := range route.Spec.Rules[0].BackendRefs {
			if backend.Port == nil || !slices.Contains(served[string(backend.Name)], *backend.Port) {
				r.problem("TLSRoute %s: no Service %s has the port", route.Name, backend.Name)
			}
		}
	}
	for _, m := range of[*monitoring.ServiceMonitor](r.objects) {
		r.scraped(m)
	}
}

// scraped: a ServiceMonitor selects one Service that has its port.
func (r *release) scraped(m *monitoring.ServiceMonitor) {
	s, err := meta.LabelSelectorAsSelector(&m.Spec.Selector)
	var found int
	for _, service := range of[*core.Service](r.objects) {
		if err == nil && s.Matches(labels.Set(service.Labels)) {
			found++
			if !slices.ContainsFunc(service.Spec.Ports, func(p core.ServicePort) bool { return p.Name == m.Spec.Endpoints[0].Port }) {
				r.problem("Service %s has no port %s for the ServiceMonitor", service.Name, m.Spec.Endpoints[0].Port)
			}
			if service.Labels[m.Spec.JobLabel] == "" {
				r.problem("Service %s has no label %s, which names the job", service.Name, m.Spec.JobLabel)
			}
		}
	}
	if found != 1 {
		r.problem("the ServiceMonitor selects %d Services", found)
	}
}

// probes ask a port that the container has, the way that the gateway answers.
func (r *release) probes() {
	c := r.pod.Spec.Containers[0]
	if c.StartupProbe == nil && c.LivenessProbe == nil && c.ReadinessProbe == nil {
		if slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == "metrics" }) {
			r.problem("there are no probes")
		}
		return
	}
	for _, p := range []struct {
		probe *core.Probe
		path  string
	}{{c.StartupProbe, "/healthz"}, {c.LivenessProbe, "/healthz"}, {c.ReadinessProbe, "/readyz"}} {
		if p.probe == nil || p.probe.HTTPGet == nil || p.probe.HTTPGet.Path != p.path || p.probe.HTTPGet.Port.String() != "metrics" ||
			p.probe.HTTPGet.Scheme != "" || p.probe.PeriodSeconds == 0 || p.probe.FailureThreshold == 0 {
			r.problem("no complete probe for %s", p.path)
		}
	}
}

// stop: the pod has the time that the gateway needs.
func (r *release) stop() {
	delay, grace := r.config.Shutdown(false)
	var before time.Duration
	if l := r.pod.Spec.Containers[0].Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		before = time.Duration(l.PreStop.Sleep.Seconds) * time.Second
	}
	if before < delay || before > delay+time.Second {
		r.problem("preStop sleeps %s, and shutdown_delay is %s", before, delay)
	}
	period := r.pod.Spec.TerminationGracePeriodSeconds
	if period == nil || time.Duration(*period)*time.Second < before+delay+grace+2*time.Second {
		r.problem("terminationGracePeriodSeconds is too small for %s, %s, %s and 2s", before, delay, grace)
	}
}

// memory: the limit is four thirds of limits.memory_mib or more, and requested.
func (r *release) memory() {
	resources := r.pod.Spec.Containers[0].Resources
	limit, request := resources.Limits[core.ResourceMemory], resources.Requests[core.ResourceMemory]
	mib := int64(r.config.Limits.MemoryMiB)
	if mib == 0 {
		mib = 768
	}
	if limit.Value() < (mib<<20)/3*4 || request.IsZero() || request.Cmp(limit) > 0 {
		r.problem("memory has the limit %s and the request %s, and limits.memory_mib is %d", limit.String(), request.String(), mib)
	}
	if limit.Value() < r.config.MemoryBound() {
		r.problem("the gateway may use more memory than its container has")
	}
	if request := resources.Requests[core.ResourceCPU]; request.IsZero() {
		r.problem("no CPU is requested")
	}
}

// security is that of the standard "restricted", and a read-only file system.
func (r *release) security() {
	pod, c := r.pod.Spec, r.pod.Spec.Containers[0]
	yes := func(b *bool) bool { return b != nil && *b }
	no := func(b *bool) bool { return b != nil && !*b }
	p, s := pod.SecurityContext, c.SecurityContext
	if p == nil || s == nil || !yes(p.RunAsNonRoot) || p.RunAsUser == nil || *p.RunAsUser != 65532 || p.FSGroup == nil || *p.FSGroup != 65532 ||
		p.SeccompProfile == nil || p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		r.problem("the pod does not run as user 65532 with the default seccomp profile")
	}
	if s == nil || !no(s.AllowPrivilegeEscalation) || !yes(s.ReadOnlyRootFilesystem) || s.Capabilities == nil ||
		!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
		r.problem("the container keeps privileges, or a file system that it can write")
	}
	if !no(pod.AutomountServiceAccountToken) {
		r.problem("the pod gets a token of its service account")
	}
	for _, account := range of[*core.ServiceAccount](r.objects) {
		if !no(account.AutomountServiceAccountToken) || account.Name != pod.ServiceAccountName {
			r.problem("the service account has a token, or is not that of the pod")
		}
	}
	name, digest, pinned := strings.Cut(c.Image, "@")
	_, tag, tagged := strings.Cut(path.Base(name), ":")
	if pinned && !strings.HasPrefix(digest, "sha256:") || !pinned && !tagged || tag == "latest" {
		r.problem("the image %s is not pinned to a version", c.Image)
	}
}

// volumes: each is mounted, each mount has one, and files of the configuration are in one.
func (r *release) volumes() {
	volumes := map[string]bool{}
	for _, v := range r.pod.Spec.Volumes {
		if volumes[v.Name] {
			r.problem("two volumes are called %s", v.Name)
		}
		volumes[v.Name] = true
		if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440) {
			r.problem("the files of volume %s do not have the mode 0440", v.Name)
		}
		if v.ConfigMap != nil && !slices.ContainsFunc(of[*core.ConfigMap](r.objects), func(m *core.ConfigMap) bool { return m.Name == v.ConfigMap.Name }) {
			r.problem("there is no ConfigMap %s", v.ConfigMap.Name)
		}
	}
	for _, claim := range r.claims {
		volumes[claim.Name] = true
	}
	var folders []string
	for _, m := range r.pod.Spec.Containers[0].VolumeMounts {
		if !volumes[m.Name] {
			r.problem("there is no volume %s, or it is mounted twice", m.Name)
		}
		delete(volumes, m.Name)
		folders = append(folders, m.MountPath+"/")
		if m.Name == "config" && (m.MountPath != "/etc/aepb" || m.SubPath != "") {
			r.problem("the configuration is not mounted as a folder at /etc/aepb: a single file does not change")
		}
	}
	if len(volumes) > 0 {
		r.problem("volumes are not mounted: %v", volumes)
	}
	files := append(r.config.Files(), r.config.State.Key, r.config.State.Path, r.config.State.Redis.PasswordFile, strings.TrimPrefix(r.config.Identity.WorkloadAPI, "unix://"))
	for _, file := range files {
		if file != "" && !slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(file, folder) }) {
			r.problem("%s is in no volume", file)
		}
	}
}

// secrets: the release brings none, and its ConfigMaps have none.
func (r *release) secrets() {
	for _, m := range of[*core.ConfigMap](r.objects) {
		for key, text := range m.Data {
			if strings.Contains(text, "PRIVATE KEY") || strings.Contains(text, "password:") {
				r.problem("ConfigMap %s has a secret at %s", m.Name, key)
			}
		}
	}
	for _, env := range r.pod.Spec.Containers[0].Env {
		if env.Value != "" && (strings.Contains(env.Name, "PASSWORD") || strings.Contains(env.Name, "TOKEN")) {
			r.problem("%s has its value in the manifest", env.Name)
		}
	}
}

func TestRules_Hold(t *testing.T) {
	for _, name := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			objects := decodeAll(t, renderSet(t, name))
			c, err := checkConfig(gatewayConfig(t, objects))
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range judge(objects, c) {
				t.Error(problem)
			}
		})
	}
}

// TestRules_FindWhatIsBroken breaks renderings, each in one place.
func TestRules_FindWhatIsBroken(t *testing.T) {
	for _, b := range []struct{ set, old, replacement, want string }{
		{"single", "type: Recreate", "type: RollingUpdate", "second gateway"},
		{"single", "replicas: 1", "replicas: 2", "2 replicas without state"},
		{"single", "targetPort: public", "targetPort: https", "no container has the port https"},
		{"single", "containerPort: 8443", "containerPort: 8444", "the container has the ports"},
		{"single", "  selector:\n    app.kubernetes.io/name: aepb-gateway", "  selector:\n    app.kubernetes.io/name: other", "the selector of Service"},
		{"single", "path: /readyz, port: metrics", "path: /healthz, port: metrics", "no complete probe for /readyz"},
		{"single", "seconds: 5", "seconds: 2", "preStop sleeps 2s"},
		{"single", "terminationGracePeriodSeconds: 37", "terminationGracePeriodSeconds: 31", "too small"},
		{"single", "limits:\n              memory: 1024Mi", "limits:\n              memory: 1000Mi", "memory has the limit"},
		{"single", "runAsUser: 65532", "runAsUser: 1000", "user 65532"},
		{"single", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "keeps privileges"},
		{"single", "drop: [ALL]", "drop: [NET_RAW]", "keeps privileges"},
		{"single", "automountServiceAccountToken: false\n      enable", "enable", "a token"},
		{"single", "aepb-gateway:0.1.0", "aepb-gateway:latest", "not pinned"},
		{"single", "aepb-gateway:0.1.0", "aepb-gateway", "not pinned"},
		{"single", "mountPath: /run/svid", "mountPath: /run/other", "/run/svid/tls.crt is in no volume"},
		{"single", "defaultMode: 0440", "defaultMode: 0444", "mode 0440"},
		{"single", "mountPath: /etc/aepb\n", "mountPath: /etc/aepb\n              subPath: gateway.yaml\n", "single file"},
		{"single", "      configMap:\n            name: ", "      configMap:\n            name: other-", "no ConfigMap"},
		{"single", "data:\n  gateway", "data:\n  key.pem: BEGIN PRIVATE KEY\n  gateway", "has a secret"},
		{"single", "  namespace: agents\n", "", "not in the namespace"},
		{"stateful", "whenDeleted: Retain", "whenDeleted: Delete", "does not stay"},
		{"stateful", "serviceName: gw", "serviceName: other", "is no Service"},
		{"replicas", "maxSurge: 0", "maxSurge: 1", "exceed max_replicas"},
		{"replicas", "replicas: 3", "replicas: 1", "PodDisruptionBudget with 1 replica"},
		{"autoscaling", "kind: Deployment\n    name", "kind: StatefulSet\n    name", "do not fit together"},
		{"spire", "matchLabels:\n      kubernetes.io/metadata.name: agents", "matchLabels: {}", "all namespaces"},
		{"tlsroute", "          port: 443", "          port: 8443", "no Service gw-aepb-gateway has the port"},
		{"monitoring", "app.kubernetes.io/component: metrics\n  endpoints", "app.kubernetes.io/version: 0.1.0\n  endpoints", "selects"},
		{"networkpolicy", "{port: admin,", "{port: operators,", "allows the port operators"},
		{"protocols", "name: uacp\n      port: 8888", "name: metrics\n      port: 8888", "outside the cluster"},
	} {
		documents := strings.Join(renderSet(t, b.set).manifests(), "---\n")
		broken := strings.Replace(documents, b.old, b.replacement, 1)
		if broken == documents {
			t.Errorf("%s has no %q to break", b.set, b.old)
			continue
		}
		objects := decodeText(t, broken)
		c, err := checkConfig(gatewayConfig(t, objects))
		if err != nil {
			t.Fatal(err)
		}
		if problems := judge(objects, c); !strings.Contains(strings.Join(problems, "\n"), b.want) {
			t.Errorf("%s with %q: %q, expected %q", b.set, b.replacement, problems, b.want)
		}
	}
}

func decodeText(t *testing.T, text string) []object {
	t.Helper()
	var out []object
	for _, document := range documents(text) {
		out = append(out, decode(t, document))
	}
	return out
}
