package deploy

import (
	// Until the tests that use them are here: the versions of go.mod.
	_ "github.com/aepb/aepb-gateway/gateway/config"
	_ "github.com/compose-spec/compose-go/v2/loader"
	_ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	_ "github.com/prometheus/prometheus/promql/parser"
	_ "helm.sh/helm/v4/pkg/chart/common/util"
	_ "helm.sh/helm/v4/pkg/chart/v2/loader"
	_ "helm.sh/helm/v4/pkg/engine"
	_ "k8s.io/api/apps/v1"
	_ "sigs.k8s.io/gateway-api/apis/v1"
	_ "sigs.k8s.io/yaml"
)
