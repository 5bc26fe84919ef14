package controllers

import (
	"podium/pkg/controllers/bootstrapsigner"
	"podium/pkg/controllers/clusterroleaggregation"
	"podium/pkg/controllers/crew"
	"podium/pkg/controllers/csrapproving"
	"podium/pkg/controllers/csrcleaner"
	"podium/pkg/controllers/csrsigning"
	"podium/pkg/controllers/deployment"
	"podium/pkg/controllers/endpoints"
	"podium/pkg/controllers/endpointslice"
	"podium/pkg/controllers/endpointslicemirroring"
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
type controller crew.Member

// list is every controller there is.
func list(c *Config) []controller {
	return []controller{
		{"deployment-controller", "deployment-controller", "deployment-controller", c.DeploymentSyncs, crew.Plain(deployment.New)},
		{"replicaset-controller", "replicaset-controller", "replicaset-controller", c.ReplicaSetSyncs, crew.Plain(replicaset.New)},
		{"endpointslice-controller", "endpoint-slice-controller", "endpointslice-controller", c.ServiceEndpointSyncs, c.endpointSlices},
		{"endpoints-controller", "endpoint-controller", "endpoint-controller", c.EndpointSyncs, c.endpoints},
		{"endpointslice-mirroring-controller", "endpoint-slice-mirroring-controller", "endpointslicemirroring-controller", c.MirroringSyncs, crew.Plain(endpointslicemirroring.New)},
		{"garbage-collector-controller", "garbage-collector-controller", "generic-garbage-collector", c.GCSyncs, crew.Plain(garbagecollector.New)},
		{"namespace-controller", "namespace-controller", "namespace-controller", c.NamespaceSyncs, crew.Plain(namespace.New)},
		{"serviceaccount-controller", "serviceaccount-controller", "service-account-controller", c.ServiceAccountSyncs, crew.Plain(serviceaccount.New)},
		{"serviceaccount-token-controller", "serviceaccount-token-controller", "tokens-controller", c.ServiceAccountSyncs, c.accountTokens()},
		{"bootstrap-signer-controller", "bootstrap-signer", "bootstrap-signer", 1, crew.Plain(bootstrapsigner.New)},
		{"token-cleaner-controller", "token-cleaner", "token-cleaner", 1, crew.Plain(tokencleaner.New)},
		{"root-ca-certificate-publisher-controller", "root-ca-cert-publisher", "root-ca-cert-publisher", c.ServiceAccountSyncs, c.rootCA()},
		{"node-lifecycle-controller", "node-controller", "node-controller", 8, c.nodeLifecycle},
		{"taint-eviction-controller", "taint-eviction-controller", "node-controller", 8, crew.Plain(tainteviction.New)},
		{"pod-garbage-collector-controller", "pod-garbage-collector", "pod-garbage-collector", 1, c.podGC},
		{"node-ipam-controller", "cidrAllocator", "node-controller", 5, c.nodeIPAM()},
		{"certificatesigningrequest-approving-controller", "certificate-controller", "certificate-controller", 5, crew.Plain(csrapproving.New)},
		{"certificatesigningrequest-signing-controller", "certificate-controller", "certificate-controller", 5, c.csrSigning()},
		{"certificatesigningrequest-cleaner-controller", "certificate-controller", "certificate-controller", 1, crew.Plain(csrcleaner.New)},
		{"clusterrole-aggregation-controller", "clusterrole-aggregation-controller", "clusterrole-aggregation-controller", 5, crew.Plain(clusterroleaggregation.New)},
	}
}

func members(c *Config) []crew.Member {
	var out []crew.Member
	for _, ctl := range list(c) {
		out = append(out, crew.Member(ctl))
	}
	return out
}

func (c *Config) endpointSlices(k kit.Kit) (crew.Runner, error) {
	return endpointslice.New(endpointslice.Config{Kit: k, MaxSize: c.MaxEndpointsPerSlice, Batch: c.EndpointSliceBatch}), nil
}

func (c *Config) endpoints(k kit.Kit) (crew.Runner, error) {
	return endpoints.New(endpoints.Config{Kit: k, Batch: c.EndpointBatch}), nil
}

func (c *Config) rootCA() func(kit.Kit) (crew.Runner, error) {
	if len(c.RootCA) == 0 {
		return nil
	}
	return func(k kit.Kit) (crew.Runner, error) { return rootca.New(rootca.Config{Kit: k, CA: c.RootCA}), nil }
}

func (c *Config) accountTokens() func(kit.Kit) (crew.Runner, error) {
	if c.TokenKey == nil {
		return nil
	}
	return func(k kit.Kit) (crew.Runner, error) {
		return serviceaccounttoken.New(serviceaccounttoken.Config{Kit: k, Key: c.TokenKey, CA: c.RootCA}), nil
	}
}

func (c *Config) nodeLifecycle(k kit.Kit) (crew.Runner, error) {
	return nodelifecycle.New(nodelifecycle.Config{Kit: k, Options: c.Nodes}), nil
}

func (c *Config) podGC(k kit.Kit) (crew.Runner, error) {
	return podgc.New(podgc.Config{Kit: k, Keep: c.PodGCThreshold}), nil
}

func (c *Config) nodeIPAM() func(kit.Kit) (crew.Runner, error) {
	if !c.AllocateNodeCIDRs {
		return nil
	}
	return func(k kit.Kit) (crew.Runner, error) {
		return nodeipam.New(nodeipam.Config{Kit: k, Ranges: c.ClusterCIDRs, Reserved: c.ServiceCIDRs})
	}
}

func (c *Config) csrSigning() func(kit.Kit) (crew.Runner, error) {
	if len(c.Signing.Authorities) == 0 {
		return nil
	}
	return func(k kit.Kit) (crew.Runner, error) {
		return csrsigning.New(csrsigning.Config{Kit: k, Authorities: c.Signing.Authorities, Longest: c.Signing.Longest}), nil
	}
}
