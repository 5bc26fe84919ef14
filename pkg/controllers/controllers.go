package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"podium/pkg/controllers/bootstrapsigner"
	"podium/pkg/controllers/clusterroleaggregation"
	"podium/pkg/controllers/csrapproving"
	"podium/pkg/controllers/csrcleaner"
	"podium/pkg/controllers/csrsigning"
	"podium/pkg/controllers/deployment"
	"podium/pkg/controllers/endpoints"
	"podium/pkg/controllers/endpointslice"
	"podium/pkg/controllers/garbagecollector"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/namespace"
	"podium/pkg/controllers/nodeipam"
	"podium/pkg/controllers/nodelifecycle"
	"podium/pkg/controllers/podgc"
	"podium/pkg/controllers/replicaset"
	"podium/pkg/controllers/rootca"
	"podium/pkg/controllers/serviceaccount"
	"podium/pkg/controllers/serviceaccounttoken"
	"podium/pkg/controllers/tainteviction"
	"podium/pkg/controllers/tokencleaner"
)

// controller is one line of the list.
type controller struct {
	name      string // as --controllers has it
	component string // as its events have it
	account   string // in kube-system, which it works as
	workers   int
	build     func(kit.Kit) (runner, error) // nil: the configuration does not ask for it
}

type runner interface {
	Run(ctx context.Context) error
}

// list is every controller there is.
func list(c *Config) []controller {
	return []controller{
		{"deployment-controller", "deployment-controller", "deployment-controller", c.DeploymentSyncs, plain(deployment.New)},
		{"replicaset-controller", "replicaset-controller", "replicaset-controller", c.ReplicaSetSyncs, plain(replicaset.New)},
		{"endpointslice-controller", "endpoint-slice-controller", "endpointslice-controller", c.ServiceEndpointSyncs, c.endpointSlices},
		{"endpoints-controller", "endpoint-controller", "endpoint-controller", c.EndpointSyncs, c.endpoints},
		{"garbage-collector-controller", "garbage-collector-controller", "generic-garbage-collector", c.GCSyncs, plain(garbagecollector.New)},
		{"namespace-controller", "namespace-controller", "namespace-controller", c.NamespaceSyncs, plain(namespace.New)},
		{"serviceaccount-controller", "serviceaccount-controller", "service-account-controller", c.ServiceAccountSyncs, plain(serviceaccount.New)},
		{"serviceaccount-token-controller", "serviceaccount-token-controller", "tokens-controller", c.ServiceAccountSyncs, c.accountTokens()},
		{"bootstrap-signer-controller", "bootstrap-signer", "bootstrap-signer", 1, plain(bootstrapsigner.New)},
		{"token-cleaner-controller", "token-cleaner", "token-cleaner", 1, plain(tokencleaner.New)},
		{"root-ca-certificate-publisher-controller", "root-ca-cert-publisher", "root-ca-cert-publisher", c.ServiceAccountSyncs, c.rootCA()},
		{"node-lifecycle-controller", "node-controller", "node-controller", 8, c.nodeLifecycle},
		{"taint-eviction-controller", "taint-eviction-controller", "node-controller", 8, plain(tainteviction.New)},
		{"pod-garbage-collector-controller", "pod-garbage-collector", "pod-garbage-collector", 1, c.podGC},
		{"node-ipam-controller", "cidrAllocator", "node-controller", 5, c.nodeIPAM()},
		{"certificatesigningrequest-approving-controller", "certificate-controller", "certificate-controller", 5, plain(csrapproving.New)},
		{"certificatesigningrequest-signing-controller", "certificate-controller", "certificate-controller", 5, c.csrSigning()},
		{"certificatesigningrequest-cleaner-controller", "certificate-controller", "certificate-controller", 1, plain(csrcleaner.New)},
		{"clusterrole-aggregation-controller", "clusterrole-aggregation-controller", "clusterrole-aggregation-controller", 5, plain(clusterroleaggregation.New)},
	}
}

func plain[C runner](build func(kit.Kit) C) func(kit.Kit) (runner, error) {
	return func(k kit.Kit) (runner, error) { return build(k), nil }
}

func (c *Config) endpointSlices(k kit.Kit) (runner, error) {
	return endpointslice.New(endpointslice.Config{Kit: k, MaxSize: c.MaxEndpointsPerSlice, Batch: c.EndpointSliceBatch}), nil
}

func (c *Config) endpoints(k kit.Kit) (runner, error) {
	return endpoints.New(endpoints.Config{Kit: k, Batch: c.EndpointBatch}), nil
}

func (c *Config) rootCA() func(kit.Kit) (runner, error) {
	if len(c.RootCA) == 0 {
		return nil
	}
	return func(k kit.Kit) (runner, error) { return rootca.New(rootca.Config{Kit: k, CA: c.RootCA}), nil }
}

func (c *Config) accountTokens() func(kit.Kit) (runner, error) {
	if c.TokenKey == nil {
		return nil
	}
	return func(k kit.Kit) (runner, error) {
		return serviceaccounttoken.New(serviceaccounttoken.Config{Kit: k, Key: c.TokenKey, CA: c.RootCA}), nil
	}
}

func (c *Config) nodeLifecycle(k kit.Kit) (runner, error) {
	return nodelifecycle.New(nodelifecycle.Config{Kit: k, Options: c.Nodes}), nil
}

func (c *Config) podGC(k kit.Kit) (runner, error) {
	return podgc.New(podgc.Config{Kit: k, Keep: c.PodGCThreshold}), nil
}

func (c *Config) nodeIPAM() func(kit.Kit) (runner, error) {
	if !c.AllocateNodeCIDRs {
		return nil
	}
	return func(k kit.Kit) (runner, error) {
		return nodeipam.New(nodeipam.Config{Kit: k, Ranges: c.ClusterCIDRs, Reserved: c.ServiceCIDRs})
	}
}

func (c *Config) csrSigning() func(kit.Kit) (runner, error) {
	if c.Signing.Authority == nil {
		return nil
	}
	return func(k kit.Kit) (runner, error) {
		return csrsigning.New(csrsigning.Config{Kit: k, Authority: c.Signing.Authority, Longest: c.Signing.Longest}), nil
	}
}

// enabled are the controllers that the configuration asks for.
func enabled(c *Config) []controller {
	var out []controller
	for _, ctl := range list(c) {
		if ctl.build != nil && selected(c.Controllers, ctl.name) {
			out = append(out, ctl)
		}
	}
	return out
}

func selected(asked []string, name string) bool {
	switch {
	case slices.Contains(asked, name):
		return true
	case slices.Contains(asked, "-"+name):
		return false
	}
	return len(asked) == 0 || slices.Contains(asked, "*")
}

// checkNames finds controllers that were asked for and do not exist.
func checkNames(c *Config) error {
	known := []string{"*"}
	for _, ctl := range list(c) {
		known = append(known, ctl.name)
	}
	for _, name := range c.Controllers {
		if !slices.Contains(known, strings.TrimPrefix(name, "-")) {
			return fmt.Errorf("--controllers: %q is not a controller; there are %s", name, strings.Join(known[1:], ", "))
		}
	}
	return nil
}
