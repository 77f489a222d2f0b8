package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Identity tells how long a gateway's identity, and its trust in others, still holds.
type Identity struct {
	// Expiry is the end of what the gateway is: svid, bundle (the trust bundle of its
	// own trust domain) and, where callers are shown another certificate, public. A
	// zero time: it is not known.
	Expiry func() map[string]time.Time
	// Bundles are the ends of the trust bundles, by trust domain. These must come from
	// the configuration or the Workload API, as they become labels.
	Bundles func() map[string]time.Time
	// Failures counts how often the Workload API failed.
	Failures func() uint64
}

func (i Identity) collectors(d *definitions) []prometheus.Collector {
	return []prometheus.Collector{
		d.gauges("identity_expiry_timestamp_seconds",
			"Unix time at which the identity in force ends: svid, with its chain and its anchor; bundle, the anchors of the own trust domain; public, the certificate of tls.certificate. 0: it is not known.",
			"Alert while less than a quarter of the usual life is left: what renews it has failed. See that the SPIFFE agent runs, or put new files in place; they are read by themselves. After the end the gateway is not ready and its callers fail in the handshake.",
			"kind", seconds(i.Expiry)),
		d.gauges("bundle_expiry_timestamp_seconds",
			"Unix time at which the last trust anchor of a trust domain ends: the own one, and those that are federated. 0: it is not known.",
			"Alert a week before, or sooner with short-lived anchors: afterwards callers and agents of that trust domain are refused. Renew identity.bundle or identity.federated, or see that the SPIFFE agent does.",
			"trust_domain", seconds(i.Bundles)),
		d.counterFunc("identity_watch_errors_total",
			"Times that the SPIFFE Workload API could not be reached, refused, or gave an answer that will not do. Always 0 where files say who the gateway is.",
			"Alert when it grows for longer than a restart of the SPIFFE agent takes: the log says why. What the API said last stays in force until identity_expiry_timestamp_seconds.",
			nil, func() float64 { return float64(i.Failures()) }),
	}
}

func seconds(ends func() map[string]time.Time) func() map[string]float64 {
	return func() map[string]float64 {
		out := map[string]float64{}
		for name, end := range ends() {
			if out[name] = 0; !end.IsZero() {
				out[name] = float64(end.Unix())
			}
		}
		return out
	}
}
