package chart

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// refusal is a set of values with one mistake, laid over testdata/single.yaml, and what the
// chart says about it.
type refusal struct{ name, values, want string }

var checked = []refusal{
	{"no public_url", "config: {public_url: null}", "config.public_url: missing: set the URL where callers reach the gateway, such as https://gw.example.com"},
	{"no operator", "config: {admin: {operators: null}}", "config.admin.operators: missing: name at least one operator, with id and roles"},
	{"no trust domain", "config: {identity: {trust_domain: null}}", "config.identity.trust_domain: missing: set the SPIFFE trust domain of the gateway, such as example.com"},
	{"no identity", "config: {identity: {certificate: null, key: null, bundle: null}}", "config.identity: no identity: set identity.secret and the files config.identity.certificate, key and bundle below /run/svid, or spire.enabled: true and config.identity.workload_api: unix:///spiffe-workload-api/spire-agent.sock"},
	{"half an identity", "config: {identity: {bundle: null}}", "config.identity: no identity: "},
	{"identity not mounted", "identity: {secret: ''}", "config.identity.certificate: /run/svid/tls.crt is not in a mounted volume: set identity.secret and name a file below /run/svid, or use secrets, or extraVolumes and extraVolumeMounts"},
	{"identity beside its mount", "config: {identity: {key: /run/svid/../key}}", "config.identity.key: /run/svid/../key is not in a mounted volume: "},
	{"socket not mounted", "config: {identity: {certificate: null, key: null, bundle: null, workload_api: 'unix:///spiffe-workload-api/spire-agent.sock'}}", "config.identity.workload_api: /spiffe-workload-api/spire-agent.sock is not in a mounted volume: set spire.enabled: true and unix:///spiffe-workload-api/spire-agent.sock, or use extraVolumes and extraVolumeMounts"},
	{"graph off", "config: {policy: {graph: off}}", `config.policy.graph: true or false, expected off, warn or refuse: write "off" in quotation marks, because YAML reads the bare word as false`},

	{"replicas alone", "replicas: 2", "replicas: 2 replicas must share their state: set config.state.redis and config.state.key, or replicas: 1"},
	{"autoscaling alone", "autoscaling: {enabled: true}", "autoscaling.enabled: replicas must share their state: set config.state.redis and config.state.key, or autoscaling.enabled: false"},
	{"Redis and a file", "config: {state: {path: /var/lib/aepb/state.db, unverified: true, redis: {addresses: ['r:1']}}}", "config.state.path: state is kept in a file or in Redis, not both: remove config.state.path or config.state.redis"},
	{"Redis without a key", "config: {state: {redis: {addresses: ['r:1']}}}", "config.state.key: missing, and required with config.state.redis: mount a secret that has the key (openssl rand -hex 32) and name its file, or set config.state.unverified: true to believe every program that can write to this Redis"},
	{"too many replicas", "{replicas: 4, config: {state: {unverified: true, redis: {addresses: ['r:1']}}}}", "replicas: 4 is more than config.state.redis.max_replicas (3), by which the replicas divide the limits: raise that, or lower replicas"},
	{"too many replicas by load", "{autoscaling: {enabled: true, maxReplicas: 12}, config: {state: {unverified: true, redis: {addresses: ['r:1'], max_replicas: 10}}}}", "autoscaling.maxReplicas: 12 is more than config.state.redis.max_replicas (10), by which the replicas divide the limits: raise that, or lower autoscaling.maxReplicas"},
	{"least above most", "{autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 2}, config: {state: {unverified: true, redis: {addresses: ['r:1']}}}}", "autoscaling.minReplicas: 3 is more than autoscaling.maxReplicas (2): lower it"},
	{"autoscaling without CPU", "{autoscaling: {enabled: true}, resources: {requests: {cpu: null}}, config: {state: {unverified: true, redis: {addresses: ['r:1']}}}}", "resources.requests.cpu: missing, and autoscaling.cpuUtilization is a percentage of it: set it, such as 500m"},
	{"budget of one", "podDisruptionBudget: {enabled: true}", "podDisruptionBudget.enabled: a budget protects nothing with one replica: set replicas: 2 or more, or podDisruptionBudget.enabled: false"},
	{"budget of one by load", "{podDisruptionBudget: {enabled: true}, autoscaling: {enabled: true, minReplicas: 1}, config: {state: {unverified: true, redis: {addresses: ['r:1']}}}}", "podDisruptionBudget.enabled: a budget protects nothing with one replica: set autoscaling.minReplicas: 2 or more, or podDisruptionBudget.enabled: false"},

	{"probes without metrics", "config: {listen: {metrics: null}}", `config.listen.metrics: missing, and needed by probes.enabled: set ":9464", or probes.enabled: false`},
	{"probes on loopback", "config: {listen: {metrics: '[::1]:9464'}}", `config.listen.metrics: [::1]:9464 is a loopback address, and probes.enabled needs one of the pod: set ":9464", or probes.enabled: false`},
	{"monitor without metrics", "{probes: {enabled: false}, serviceMonitor: {enabled: true}, config: {listen: {metrics: ''}}}", `config.listen.metrics: missing, and needed by serviceMonitor.enabled: set ":9464", or serviceMonitor.enabled: false`},
	{"monitor on loopback", "{probes: {enabled: false}, serviceMonitor: {enabled: true}, config: {listen: {metrics: 'localhost:9464'}}}", `config.listen.metrics: localhost:9464 is a loopback address, and serviceMonitor.enabled needs one of the pod: set ":9464", or serviceMonitor.enabled: false`},
	{"public on loopback", "config: {listen: {public: '127.0.0.1:8443'}}", "config.listen.public: 127.0.0.1:8443 is a loopback address, which the Service does not reach: set :8443"},
	{"no port", "config: {listen: {grpc: 'grpc'}}", `config.listen.grpc: "grpc" has no port that a Service can name: set an address such as :8443`},
	{"any port", "config: {listen: {uacp: ':0'}}", `config.listen.uacp: ":0" has no port that a Service can name: set an address such as :8443`},
	{"route to nothing", "tlsRoutes: [{port: grpc, parentRefs: [{name: edge}]}]", `tlsRoutes[0].port: there is no listener "grpc": set config.listen.grpc, or remove the route`},
	{"route of an address", "{tlsRoutes: [{port: public, parentRefs: [{name: edge}]}], config: {public_url: 'https://10.0.0.1:8443'}}", "tlsRoutes[0].hostnames: missing, and the host of config.public_url is an address: name a host"},

	{"password not mounted", "config: {state: {unverified: true, redis: {addresses: ['r:1'], password_file: /run/secrets/redis/password}}}", "config.state.redis.password_file: /run/secrets/redis/password is not in a mounted volume: mount a secret with secrets: [{name: NAME, secret: SECRET}] and name a file below /run/secrets/NAME, or use extraVolumes and extraVolumeMounts"},
	{"password of another secret", "{secrets: [{name: red, secret: s}], config: {state: {unverified: true, redis: {addresses: ['r:1'], password_file: /run/secrets/redis/password}}}}", "config.state.redis.password_file: /run/secrets/redis/password is not in a mounted volume: "},
	{"state outside the volume", "config: {state: {path: /var/lib/state.db}}", "config.state.path: /var/lib/state.db is not below persistence.mountPath (/var/lib/aepb): set /var/lib/aepb/state.db"},
	{"state is the volume", "config: {state: {path: /var/lib/aepb}}", "config.state.path: /var/lib/aepb is not below persistence.mountPath (/var/lib/aepb): set /var/lib/aepb/state.db"},

	{"little memory", "resources: {limits: {memory: 1023Mi}}", "resources.limits.memory: 1023Mi is too small: config.limits.memory_mib must be at most three quarters of it: set 1024Mi or more, or lower config.limits.memory_mib"},
	{"little memory for much", "{resources: {limits: {memory: 2G}}, config: {limits: {memory_mib: 1500}}}", "resources.limits.memory: 2G is too small: config.limits.memory_mib must be at most three quarters of it: set 2000Mi or more, or lower config.limits.memory_mib"},
	{"no quantity", "resources: {limits: {memory: much}}", `resources.limits.memory: "much" is not a quantity of memory such as 1Gi`},
	{"little time", "terminationGracePeriodSeconds: 31", "terminationGracePeriodSeconds: 31 is too small: preStop, config.shutdown_delay, config.shutdown_grace and 2 seconds need 32: set that or more, or lower them"},
	{"little time for more", "{terminationGracePeriodSeconds: 60, config: {shutdown_delay: 1m0.5s, shutdown_grace: 500ms}}", "terminationGracePeriodSeconds: 60 is too small: preStop, config.shutdown_delay, config.shutdown_grace and 2 seconds need 124: set that or more, or lower them"},
	{"no grace is the default", "{terminationGracePeriodSeconds: 31, config: {shutdown_grace: 0s}}", "terminationGracePeriodSeconds: 31 is too small: preStop, config.shutdown_delay, config.shutdown_grace and 2 seconds need 32: "},
	{"no duration", "config: {shutdown_delay: 5}", `config.shutdown_delay: "5" is not a duration such as 30s`},
	{"negative duration", "config: {shutdown_grace: -5s}", `config.shutdown_grace: "-5s" is not a duration such as 30s`},
}

// renderOver renders values laid over those of testdata/single.yaml.
func renderOver(t *testing.T, text string) (rendering, error) {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return render(loadChart(t), over(readValues(t, "testdata/single.yaml"), values), "gw", "agents")
}

// over lays values over others, as further --values do.
func over(base, values map[string]any) map[string]any {
	for key, value := range values {
		above, ok := value.(map[string]any)
		below, both := base[key].(map[string]any)
		if ok && both {
			value = over(below, above)
		}
		base[key] = value
	}
	return base
}

func TestChecks_Refuse(t *testing.T) {
	for _, c := range checked {
		t.Run(c.name, func(t *testing.T) {
			_, err := renderOver(t, c.values)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nexpected\n%s", err, c.want)
			}
		})
	}
}

// message finds the texts with which the chart refuses values.
var message = regexp.MustCompile(`(?:append \$wrong|fail) \(?(?:printf )?("(?:[^"\\]|\\.)*")`)

// TestChecks_EveryMessage: each message of the chart is in the table, as a whole.
func TestChecks_EveryMessage(t *testing.T) {
	text := string(read(t, chartDir+"/templates/_checks.tpl")) + string(read(t, chartDir+"/templates/_helpers.tpl"))
	found := message.FindAllStringSubmatch(text, -1)
	if len(found) < 20 {
		t.Fatalf("%d messages in the templates, expected at least 20", len(found))
	}
	for _, m := range found {
		format, err := strconv.Unquote(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if format == "\n- %s" { // which joins the others
			continue
		}
		pattern := regexp.MustCompile("^" + regexp.MustCompile(`%[a-z]`).ReplaceAllString(regexp.QuoteMeta(format), ".+") + "$")
		if !slices.ContainsFunc(checked, func(c refusal) bool { return pattern.MatchString(c.want) }) {
			t.Errorf("no test sees %q", format)
		}
	}
}

func TestChecks_AllAtOnce(t *testing.T) {
	_, err := renderOver(t, "{replicas: 2, config: {public_url: null, admin: null}}")
	for _, want := range []string{"\n- replicas: ", "\n- config.public_url: ", "\n- config.admin.operators: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nexpected also %q", err, want)
		}
	}
}

// TestChecks_Bounds: what is just enough is rendered.
func TestChecks_Bounds(t *testing.T) {
	for _, values := range []string{
		"resources: {limits: {memory: 1024Mi}}",
		"resources: {limits: {memory: 1Gi}}",
		"resources: {limits: {memory: 1073741824}}",
		"terminationGracePeriodSeconds: 32",
		"{terminationGracePeriodSeconds: 124, config: {shutdown_delay: 1m0.5s, shutdown_grace: 500ms}}",
		"{terminationGracePeriodSeconds: 32, config: {shutdown_grace: 0s}}", // which is the default
		"{replicas: 3, config: {state: {unverified: true, redis: {addresses: ['r:1']}}}}",
		"config: {state: {path: /var/lib/aepb/deep/state.db}}",
		"config: {policy: null, limits: null, tls: null, agents: {}, listen: {admin: null}}",
		"global: {registry: other}", // Helm adds it to a subchart
	} {
		if _, err := renderOver(t, values); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// TestSchema_Refuse: misspelled keys, and values of another type.
func TestSchema_Refuse(t *testing.T) {
	for values, want := range map[string]string{
		"replica: 3":                                          "replica",
		"image: {repo: a}":                                    "repo",
		"image: {tag: latest}":                                "tag",
		"image: {digest: sha256:1}":                           "digest",
		"service: {ports: 1}":                                 "ports",
		"spire: {clusterSPIFFEID: {template: a}}":             "template",
		"secrets: [{name: a}]":                                "secret",
		"secrets: [{name: A_b, secret: s}]":                   "name",
		"tlsRoutes: [{port: public}]":                         "parentRefs",
		"tlsRoutes: [{port: admin, parentRefs: [{name: a}]}]": "port",
		"replicas: two":                                       "replicas",
		"config: {listen: ':8443'}":                           "listen",
		"config: {limits: {memory_mib: '1'}}":                 "memory_mib",
		"config: {state: {redis: {addresses: 'r:1'}}}":        "addresses",
		"probes: {startup: {period: 1}}":                      "period",
		"networkPolicy: {egress: {}}":                         "egress",
	} {
		_, err := renderOver(t, values)
		if err == nil || !strings.Contains(err.Error(), "values don't meet the specifications of the schema") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected the schema to refuse %s", values, err, want)
		}
	}
}

// TestSchema_EveryDefault: the schema names each value of values.yaml, and no other.
func TestSchema_EveryDefault(t *testing.T) {
	schema := toMap(t, string(read(t, chartDir+"/values.schema.json")))["properties"].(map[string]any)
	values := readValues(t, chartDir+"/values.yaml")
	for key := range values {
		if schema[key] == nil {
			t.Errorf("%s is not in the schema", key)
		}
	}
	for key := range schema {
		if _, ok := values[key]; !ok && key != "global" {
			t.Errorf("%s is not in values.yaml", key)
		}
	}
}
