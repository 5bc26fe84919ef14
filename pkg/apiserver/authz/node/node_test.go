package node_test

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/authz/bootstrap"
	"podium/pkg/apiserver/authz/node"
	"podium/pkg/apiserver/authz/rbac"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
	"podium/pkg/volumebinding"
)

func pod(name, on string, change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{NodeName: on}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func secret(name string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Volumes = append(s.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}})
	}
}

// volume returns a persistent volume of a claim; "": of none.
func volume(name, claim string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if claim != "" {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: claim}
	}
	return v
}

// everything adds a reference of every kind to a pod.
func everything(s *corev1.PodSpec) {
	local := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	s.ServiceAccountName = "robot"
	s.ImagePullSecrets = []corev1.LocalObjectReference{local("pull")}
	s.InitContainers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("init")}}}}}
	s.Containers = []corev1.Container{{
		Env: []corev1.EnvVar{
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("env")}}},
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("env-map")}}},
			{ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		},
		EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("from-map")}}},
	}}
	s.Volumes = []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}},
		{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("volume-map")}}},
		{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: local("projected")}}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("projected-map")}},
		}}}},
		{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: &corev1.LocalObjectReference{Name: "inline"}}}},
		{VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: &corev1.LocalObjectReference{Name: "chap"}}}},
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}
	s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}, {Name: "nic", ResourceClaimTemplateName: new("nic")}}
}

// claimed has the claims that were generated for a pod.
var claimed = corev1.PodStatus{
	ResourceClaimStatuses:       []corev1.PodResourceClaimStatus{{Name: "nic", ResourceClaimName: new("generated")}, {Name: "none"}},
	ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"},
}

// confined returns a volume that no pod uses and that is on a node.
func confined(name, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{NodeAffinity: volumebinding.OnNode(node)}}
}

func attachment(name, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{NodeName: node}}
}

func TestAKubeletReachesWhatItsPodsReferTo(t *testing.T) {
	g := node.NewGraph()
	claiming := pod("mine", "a", everything)
	claiming.Status = claimed
	g.Put(claiming)
	g.Put(pod("theirs", "b", secret("theirs")))
	g.Put(pod("waiting", "", secret("waiting")))
	static := pod("static", "a", func(s *corev1.PodSpec) {
		secret("static")(s)
		s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("static")}}
	})
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	g.Put(static)
	volumes := node.Volumes{Graph: g}
	mine := volume("mine", "data")
	mine.Spec.CSI = &corev1.CSIPersistentVolumeSource{NodeStageSecretRef: &corev1.SecretReference{Namespace: "storage", Name: "stage"}}
	volumes.Put(mine)
	target := volume("target", "data")
	target.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{SecretRef: &corev1.SecretReference{Name: "target"}}
	volumes.Put(target)
	foreign := volume("foreign", "other")
	foreign.Spec.CSI = &corev1.CSIPersistentVolumeSource{NodePublishSecretRef: &corev1.SecretReference{Namespace: "storage", Name: "publish"}}
	volumes.Put(foreign)
	attachments := node.Attachments{Graph: g}
	attachments.Put(attachment("mine", "a"))
	attachments.Put(attachment("theirs", "b"))
	attachments.Put(attachment("gone", "a"))
	attachments.Remove("", "gone")
	volumes.Put(volume("freed", "data"))
	volumes.Put(volume("freed", ""))
	volumes.Put(volume("theirs", "other"))
	volumes.Put(volume("gone", "data"))
	volumes.Remove("", "gone")
	volumes.Put(confined("home", "a"))
	volumes.Put(confined("abroad", "b"))
	volumes.Put(confined("moved", "a"))
	volumes.Put(confined("moved", "b"))
	a := node.New(g, rbac.Compile(bootstrap.Node()))
	kubelet := &request.User{Name: "system:node:a", Groups: []string{request.Nodes, request.Authenticated}}
	const onlyAtHome = "can only list/watch persistentvolumes with spec.nodeAffinity.nodeName field selector of 'a'"
	const onlyMySlices = "can only delete resourceslices with spec.nodeName field selector of 'a'"
	unrelated := "no relationship found between node 'a' and this object"
	for _, row := range []struct {
		method, path, reason string
		want                 bool
	}{
		{"GET", "/api/v1/namespaces/ns/secrets/pull", "", true},
		{"GET", "/api/v1/namespaces/ns/secrets/init", "", true},
		{"GET", "/api/v1/namespaces/ns/secrets/env", "", true},
		{"GET", "/api/v1/namespaces/ns/secrets/volume", "", true},
		{"GET", "/api/v1/namespaces/ns/secrets/projected", "", true},
		{"GET", "/api/v1/namespaces/ns/secrets/chap", "", true},
		{"GET", "/api/v1/namespaces/ns/secrets/target", "", true},
		{"GET", "/api/v1/namespaces/ns/configmaps/env-map", "", true},
		{"GET", "/api/v1/namespaces/ns/configmaps/from-map", "", true},
		{"GET", "/api/v1/namespaces/ns/configmaps/volume-map", "", true},
		{"GET", "/api/v1/namespaces/ns/configmaps/projected-map", "", true},
		{"GET", "/api/v1/namespaces/ns/persistentvolumeclaims/data", "", true},
		{"GET", "/api/v1/namespaces/ns/persistentvolumeclaims/mine-scratch", "", true},
		{"GET", "/api/v1/namespaces/ns/persistentvolumeclaims/other", unrelated, false},
		{"GET", "/api/v1/namespaces/ns/persistentvolumeclaims", "", false},
		{"PUT", "/api/v1/namespaces/ns/persistentvolumeclaims/data", "", false},
		{"PATCH", "/api/v1/namespaces/ns/persistentvolumeclaims/data/status", "", true},
		{"PATCH", "/api/v1/namespaces/ns/persistentvolumeclaims/other/status", unrelated, false},
		{"GET", "/api/v1/namespaces/ns/secrets/inline", "", true},
		{"GET", "/api/v1/namespaces/storage/secrets/stage", "", true},
		{"GET", "/api/v1/namespaces/storage/secrets/publish", unrelated, false},
		{"GET", "/apis/storage.k8s.io/v1/volumeattachments/mine", "", true},
		{"GET", "/apis/storage.k8s.io/v1/volumeattachments/theirs", unrelated, false},
		{"GET", "/apis/storage.k8s.io/v1/volumeattachments/gone", unrelated, false},
		{"GET", "/apis/storage.k8s.io/v1/volumeattachments", "", false},
		{"PUT", "/apis/storage.k8s.io/v1/volumeattachments/mine", "", false},
		{"GET", "/apis/storage.k8s.io/v1/csidrivers/d", "", true},
		{"POST", "/apis/storage.k8s.io/v1/csinodes", "", true},
		{"PUT", "/apis/storage.k8s.io/v1/csinodes/a", "", true},
		{"PUT", "/apis/storage.k8s.io/v1/csinodes/b", "can only access CSINode with the same name as the requesting node", false},
		{"GET", "/apis/storage.k8s.io/v1/csinodes", "", false},
		{"GET", "/api/v1/persistentvolumes/mine", "", true},
		{"GET", "/api/v1/persistentvolumes/freed", unrelated, false},
		{"GET", "/api/v1/persistentvolumes/theirs", unrelated, false},
		{"GET", "/api/v1/persistentvolumes/gone", unrelated, false},
		{"GET", "/api/v1/persistentvolumes", onlyAtHome, false},
		{"GET", "/api/v1/persistentvolumes?watch=1&fieldSelector=spec.nodeAffinity.nodeName%3Da", "", true},
		{"GET", "/api/v1/persistentvolumes?fieldSelector=spec.nodeAffinity.nodeName%3Db", onlyAtHome, false},
		{"GET", "/api/v1/persistentvolumes?fieldSelector=metadata.name%3Dtheirs", onlyAtHome, false},
		{"GET", "/api/v1/persistentvolumes/home", "", true},
		{"PATCH", "/api/v1/persistentvolumes/home", "", true},
		{"PATCH", "/api/v1/persistentvolumes/home/status", "", false},
		{"PUT", "/api/v1/persistentvolumes/home", "", false},
		{"DELETE", "/api/v1/persistentvolumes/home", "", false},
		{"PATCH", "/api/v1/persistentvolumes/mine", unrelated, false},
		{"GET", "/api/v1/persistentvolumes/abroad", unrelated, false},
		{"PATCH", "/api/v1/persistentvolumes/abroad", unrelated, false},
		{"GET", "/api/v1/persistentvolumes/moved", unrelated, false},
		{"GET", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/gpu", "", true},
		{"GET", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/generated", "", true},
		{"GET", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/extended", "", true},
		{"GET", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/other", unrelated, false},
		{"GET", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/static", unrelated, false},
		{"GET", "/apis/resource.k8s.io/v1/namespaces/other/resourceclaims/gpu", unrelated, false},
		{"GET", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims", "", false},
		{"PATCH", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/gpu/status", "", false},
		{"DELETE", "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Da", "", true},
		{"DELETE", "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%21%3Dd%2Cspec.nodeName%3Da", "", true},
		{"DELETE", "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Db", onlyMySlices, false},
		{"DELETE", "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%21%3Db", onlyMySlices, false},
		{"DELETE", "/apis/resource.k8s.io/v1/resourceslices", onlyMySlices, false},
		{"DELETE", "/apis/resource.k8s.io/v1/resourceslices/mine", "", false},
		{"GET", "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Da", "", false},
		{"POST", "/apis/resource.k8s.io/v1/resourceslices", "", false},
		{"GET", "/api/v1/namespaces/ns/configmaps/pull", unrelated, false},
		{"GET", "/api/v1/namespaces/ns/secrets/theirs", unrelated, false},
		{"GET", "/api/v1/namespaces/ns/secrets/waiting", unrelated, false},
		{"GET", "/api/v1/namespaces/ns/secrets/static", unrelated, false},
		{"GET", "/api/v1/namespaces/other/secrets/volume", unrelated, false},
		{"GET", "/api/v1/namespaces/ns/secrets", "", false},
		{"GET", "/api/v1/secrets", "", false},
		{"PUT", "/api/v1/namespaces/ns/secrets/volume", "", false},
		{"POST", "/api/v1/namespaces/ns/serviceaccounts/robot/token", "", true},
		{"POST", "/api/v1/namespaces/ns/serviceaccounts/other/token", unrelated, false},
		{"POST", "/api/v1/namespaces/ns/serviceaccounts", "", false},
		{"GET", "/api/v1/nodes/a", "", true},
		{"GET", "/api/v1/nodes/b", "node 'a' cannot get 'b', only its own Node object", false},
		{"GET", "/api/v1/nodes", "node 'a' cannot list '', only its own Node object", false},
		{"GET", "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Da", "", true},
		{"POST", "/api/v1/nodes", "", true},
		{"PATCH", "/api/v1/nodes/a/status", "", true},
		{"PATCH", "/api/v1/nodes/b/status", "node 'a' cannot patch 'b', only its own Node object", false},
		{"DELETE", "/api/v1/nodes/a", "", false},
		{"GET", "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Da", "", true},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Db", "can only list/watch pods with spec.nodeName field selector of 'a'", false},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%21%3Db", "can only list/watch pods with spec.nodeName field selector of 'a'", false},
		{"GET", "/api/v1/pods", "can only list/watch pods with spec.nodeName field selector of 'a'", false},
		{"GET", "/api/v1/namespaces/ns/pods/mine", "", true},
		{"GET", "/api/v1/namespaces/ns/pods/theirs", unrelated, false},
		{"GET", "/api/v1/namespaces/ns/pods/waiting", unrelated, false},
		{"GET", "/api/v1/namespaces/ns/pods/gone", "", true},
		{"PATCH", "/api/v1/namespaces/ns/pods/theirs/status", unrelated, false},
		{"DELETE", "/api/v1/namespaces/ns/pods/theirs", unrelated, false},
		{"DELETE", "/api/v1/namespaces/ns/pods/mine", "", true},
		{"DELETE", "/api/v1/namespaces/ns/pods/static", "", true},
		{"POST", "/api/v1/namespaces/ns/pods", "", true},
		{"POST", "/api/v1/namespaces/ns/pods/mine/binding", "", false},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a", "", true},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/b", "can only access node lease with the same name as the requesting node", false},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a", `can only access leases in the "kube-node-lease" system namespace`, false},
		{"GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", "", true},
		{"GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podium-upgrade", "", true},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podium-upgrade", "", true},
		{"DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podium-upgrade", "", false},
		{"POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", `can only access leases in the "kube-node-lease" system namespace`, false},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/podium-upgrade", `can only access leases in the "kube-node-lease" system namespace`, false},
		{"POST", "/api/v1/namespaces/ns/pods/mine/eviction", "", true},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "", false},
		{"GET", "/metrics", "", false},
	} {
		info := request.Parse(httptest.NewRequest(row.method, row.path, nil))
		d, reason := a.Authorize(t.Context(), kubelet, &info)
		if (d == authz.Allow) != row.want || reason != row.reason {
			t.Errorf("%s %s: %v %q, want %v %q", row.method, row.path, d, reason, row.want, row.reason)
		}
	}
	for _, u := range []*request.User{{Name: "system:node:a"}, {Name: "joe", Groups: []string{request.Nodes}}, {Name: "system:node:", Groups: []string{request.Nodes}}} {
		info := request.Parse(httptest.NewRequest("GET", "/api/v1/services", nil))
		if d, _ := a.Authorize(t.Context(), u, &info); d != authz.NoOpinion {
			t.Errorf("%s is no kubelet: %v", u.Name, d)
		}
	}
}

// After any sequence of changes the graph matches the pods that exist.
func TestTheGraphFollowsThePods(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	g := node.NewGraph()
	a := node.New(g, rbac.Compile(bootstrap.Node()))
	pods := map[string]*corev1.Pod{}
	for step := range 3000 {
		name := fmt.Sprint("p", r.IntN(8))
		switch r.IntN(8) {
		case 0, 1:
			delete(pods, name)
			g.Remove("ns", name)
		case 2:
			var all []scheme.Object
			for _, p := range pods {
				all = append(all, p)
			}
			g.Replace(all)
		default:
			pods[name] = pod(name, []string{"", "a", "b"}[r.IntN(3)], secret(fmt.Sprint("s", r.IntN(4))))
			g.Put(pods[name])
		}
		for _, n := range []string{"a", "b"} {
			for i := range 4 {
				want := false
				for _, p := range pods {
					want = want || p.Spec.NodeName == n && p.Spec.Volumes[0].Secret.SecretName == fmt.Sprint("s", i)
				}
				info := request.Parse(httptest.NewRequest("GET", fmt.Sprintf("/api/v1/namespaces/ns/secrets/s%d", i), nil))
				d, _ := a.Authorize(t.Context(), &request.User{Name: "system:node:" + n, Groups: []string{request.Nodes}}, &info)
				if (d == authz.Allow) != want {
					t.Fatalf("step %d: node %s, secret %d: %v, want %v", step, n, i, d, want)
				}
			}
		}
	}
}
