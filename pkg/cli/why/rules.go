package why

// rule finds causes in one object of the story.
type rule struct {
	kind string // with its group: "Deployment.apps"; "" for all kinds
	find func(*Facts, *Object) []Finding
}

func (r rule) about(o *Object) bool {
	return r.kind == "" || r.kind == o.GroupVersionKind().GroupKind().String()
}

// on returns a rule about the objects of a kind.
func on[T any](kind string, find func(*Facts, *T) []Finding) rule {
	return rule{kind, func(f *Facts, o *Object) []Finding { return find(f, as[T](o)) }}
}

// rules returns all rules. The order matters only among findings of equal
// weight.
func rules() []rule {
	return []rule{
		{"", terminating}, {"", unseen}, {"", unhealthyConditions},
		on("Pod", waitingContainers), on("Pod", endedContainers), on("Pod", unreadyContainers),
		on("Pod", unscheduled), on("Pod", refusedPod), on("Pod", unmounted), on("Pod", noSandbox), on("Pod", stuckPod),
		on("Pod", unprepared), on("Pod", unhealthyDevices),
		on("Node", brokenNode), on("Node", cordonedNode),
		on("Deployment.apps", rollout), on("ReplicaSet.apps", replicaSetCreates), on("ReplicationController", controllerCreates),
		on("StatefulSet.apps", statefulSet), on("DaemonSet.apps", daemonSet),
		on("Job.batch", failedJob), on("CronJob.batch", cronJob),
		on("PersistentVolumeClaim", pendingClaim), on("PersistentVolume", brokenVolume), on("ResourceClaim.resource.k8s.io", deviceClaim),
		on("Service", service), on("PodDisruptionBudget.policy", budget),
		on("HorizontalPodAutoscaler.autoscaling", autoscaler), on("Ingress.networking.k8s.io", ingress),
		on("Namespace", namespace), on("CertificateSigningRequest.certificates.k8s.io", signingRequest),
		{"", ignored}, on("ResourceQuota", fullQuota),
	}
}
