package telemetry

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

const namespace = "aepb"

// Definition is a metric as operators know it. README.md in this folder is made of
// all of them.
type Definition struct {
	Name   string // as it is scraped
	Type   string // counter, gauge or histogram
	Labels []string
	Help   string // what it means; it is scraped, too
	Action string // what an operator does about it
}

// definitions are what was defined so far. A metric is made together with its
// definition, so that there is none without.
type definitions []Definition

func (d *definitions) add(kind, name, help, action string, labels []string) {
	*d = append(*d, Definition{Name: namespace + "_" + name, Type: kind, Labels: labels, Help: help, Action: action})
}

func (d *definitions) counter(name, help, action string, labels ...string) *prometheus.CounterVec {
	d.add("counter", name, help, action, labels)
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (d *definitions) histogram(name, help, action string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	d.add("histogram", name, help, action, labels)
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

func (d *definitions) gaugeVec(name, help, action string, labels ...string) *prometheus.GaugeVec {
	d.add("gauge", name, help, action, labels)
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// gauge has labels that never change, or none.
func (d *definitions) gauge(name, help, action string, labels prometheus.Labels) prometheus.Gauge {
	d.add("gauge", name, help, action, slices.Sorted(maps.Keys(labels)))
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels})
}

// gaugeFunc asks for the value at every scrape.
func (d *definitions) gaugeFunc(name, help, action string, labels prometheus.Labels, value func() float64) prometheus.Collector {
	d.add("gauge", name, help, action, slices.Sorted(maps.Keys(labels)))
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels}, value)
}

// counterFunc asks for the value at every scrape.
func (d *definitions) counterFunc(name, help, action string, labels prometheus.Labels, value func() float64) prometheus.Collector {
	d.add("counter", name, help, action, slices.Sorted(maps.Keys(labels)))
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels}, value)
}

// gauges asks for the values of one label at every scrape.
func (d *definitions) gauges(name, help, action, label string, values func() map[string]float64) prometheus.Collector {
	d.add("gauge", name, help, action, []string{label})
	return readings{prometheus.NewDesc(namespace+"_"+name, help, []string{label}, nil), prometheus.GaugeValue, values}
}

// counters asks for the counts of one label at every scrape.
func (d *definitions) counters(name, help, action, label string, values func() map[string]float64) prometheus.Collector {
	d.add("counter", name, help, action, []string{label})
	return readings{prometheus.NewDesc(namespace+"_"+name, help, []string{label}, nil), prometheus.CounterValue, values}
}

// readings are asked for at every scrape.
type readings struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func() map[string]float64
}

func (g readings) Describe(out chan<- *prometheus.Desc) { out <- g.desc }

func (g readings) Collect(out chan<- prometheus.Metric) {
	for label, value := range g.values() {
		if m, err := prometheus.NewConstMetric(g.desc, g.kind, value, label); err == nil {
			out <- m
		}
	}
}
