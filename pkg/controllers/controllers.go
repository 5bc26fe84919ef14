package controllers

import (
	"podium/pkg/controller"
	"podium/pkg/controllers/attachdetach"
	"podium/pkg/controllers/bootstrapsigner"
	"podium/pkg/controllers/clusterroleaggregation"
	"podium/pkg/controllers/cronjob"
	"podium/pkg/controllers/csrapproving"
	"podium/pkg/controllers/csrcleaner"
	"podium/pkg/controllers/csrsigning"
	"podium/pkg/controllers/daemonset"
	"podium/pkg/controllers/deployment"
	"podium/pkg/controllers/devicetainteviction"
	"podium/pkg/controllers/disruption"
	"podium/pkg/controllers/endpoints"
	"podium/pkg/controllers/endpointslice"
	"podium/pkg/controllers/endpointslicemirroring"
	"podium/pkg/controllers/ephemeralvolume"
	"podium/pkg/controllers/garbagecollector"
	"podium/pkg/controllers/horizontalpodautoscaler"
	"podium/pkg/controllers/job"
	"podium/pkg/controllers/legacytokencleaner"
	"podium/pkg/controllers/localpath"
	"podium/pkg/controllers/namespace"
	"podium/pkg/controllers/nodeipam"
	"podium/pkg/controllers/nodelifecycle"
	"podium/pkg/controllers/persistentvolume"
	"podium/pkg/controllers/podgc"
	"podium/pkg/controllers/policystatus"
	"podium/pkg/controllers/replicaset"
	"podium/pkg/controllers/replicationcontroller"
	"podium/pkg/controllers/resourceclaim"
	"podium/pkg/controllers/resourcequota"
	"podium/pkg/controllers/rootca"
	"podium/pkg/controllers/serviceaccount"
	"podium/pkg/controllers/serviceaccounttoken"
	"podium/pkg/controllers/servicecidr"
	"podium/pkg/controllers/statefulset"
	"podium/pkg/controllers/storagemigration"
	"podium/pkg/controllers/tainteviction"
	"podium/pkg/controllers/tokencleaner"
	"podium/pkg/controllers/ttl"
	"podium/pkg/controllers/ttlafterfinished"
	"podium/pkg/controllers/volumeexpand"
	"podium/pkg/controllers/volumeprotection"
)

// specs returns all controllers, including those that c disables.
func specs(c *Config) []controller.Spec {
	return []controller.Spec{
		deployment.Spec(c.DeploymentSyncs),
		replicaset.Spec(c.ReplicaSetSyncs),
		daemonset.Spec(c.DaemonSetSyncs),
		replicationcontroller.Spec(c.ReplicationControllerSyncs),
		statefulset.Spec(c.StatefulSetSyncs, c.metrics.statefulSet),
		disruption.Spec(),
		job.Spec(c.JobSyncs, c.metrics.job),
		cronjob.Spec(c.CronJobSyncs, c.metrics.cronJob),
		horizontalpodautoscaler.Spec(c.Autoscaling, c.metrics.autoscaling),
		ttlafterfinished.Spec(c.TTLAfterFinishedSyncs, c.metrics.ttlAfterFinished),
		endpointslice.Spec(endpointslice.Options{Workers: c.ServiceEndpointSyncs, MaxSize: c.MaxEndpointsPerSlice, Batch: c.EndpointSliceBatch}),
		endpoints.Spec(endpoints.Options{Workers: c.EndpointSyncs, Batch: c.EndpointBatch}),
		endpointslicemirroring.Spec(c.MirroringSyncs),
		garbagecollector.Spec(c.GCSyncs),
		namespace.Spec(c.NamespaceSyncs),
		serviceaccount.Spec(c.ServiceAccountSyncs),
		serviceaccounttoken.Spec(serviceaccounttoken.Options{Workers: c.ServiceAccountSyncs, Key: c.TokenKey, CA: c.RootCA}),
		legacytokencleaner.Spec(c.LegacyTokenPeriod),
		bootstrapsigner.Spec(),
		tokencleaner.Spec(),
		rootca.Spec(c.ServiceAccountSyncs, c.RootCA),
		resourcequota.Spec(c.ResourceQuotaSyncs, c.ResourceQuotaSyncPeriod),
		nodelifecycle.Spec(c.Nodes, c.metrics.nodeLifecycle),
		tainteviction.Spec(),
		devicetainteviction.Spec(),
		podgc.Spec(c.PodGCThreshold, c.metrics.podGC),
		nodeipam.Spec(nodeipam.Options{Disabled: !c.AllocateNodeCIDRs, Ranges: c.ClusterCIDRs, Reserved: c.ServiceCIDRs}),
		csrapproving.Spec(),
		csrsigning.Spec(c.Signing),
		csrcleaner.Spec(),
		clusterroleaggregation.Spec(),
		servicecidr.Spec(),
		ttl.Spec(),
		ephemeralvolume.Spec(c.EphemeralVolumeSyncs, c.metrics.ephemeralVolume),
		resourceclaim.Spec(c.ResourceClaimSyncs, c.metrics.resourceClaim),
		persistentvolume.Spec(c.ClaimBinderSyncPeriod),
		localpath.Spec(),
		volumeexpand.Spec(),
		attachdetach.Spec(c.NoForceDetach),
		volumeprotection.Claims(),
		volumeprotection.Volumes(),
		volumeprotection.AttributesClasses(),
		policystatus.Spec(c.PolicyStatusSyncs),
		storagemigration.Spec(),
	}
}
