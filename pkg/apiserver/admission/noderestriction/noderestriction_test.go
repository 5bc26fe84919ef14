package noderestriction_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/noderestriction"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/addresslease"
	"podium/pkg/scheme"
)

func pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-of-pod"}, Spec: corev1.PodSpec{NodeName: node}}
	for _, f := range change {
		f(p)
	}
	return p
}

func node(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-node", Labels: map[string]string{}}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		n.Labels[key] = value
	}
	return n
}

// mirror returns a mirror pod of node a.
func mirror(change ...func(*corev1.Pod)) *corev1.Pod {
	p := pod("static-a", "a")
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: "uid-of-node", Controller: new(true)}}
	for _, f := range change {
		f(p)
	}
	return p
}

func labelled(p *corev1.Pod) { p.Labels = map[string]string{"app": "bank"} }

func claiming(p *corev1.Pod) {
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "card", ResourceClaimName: new("bank")}}
}

func standing(p *corev1.Pod) {
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "bank"}
}

func volume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
}

func container(c corev1.Container) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{c} }
}

func token(pod string, audiences ...string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, BoundObjectRef: &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Pod", Name: pod, UID: "uid-of-pod"}}}
}

// tokens adds a volume with a token for each audience.
func tokens(audiences ...string) func(*corev1.Pod) {
	p := &corev1.ProjectedVolumeSource{}
	for _, a := range audiences {
		p.Sources = append(p.Sources, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: a}})
	}
	return volume(corev1.VolumeSource{Projected: p})
}

// grants returns an authorizer that allows nodes to request tokens of account
// sa for the audience "granted".
func grants() authz.Authorizer {
	return authz.Func(func(_ context.Context, _ *request.User, info *request.Info) (authz.Decision, string) {
		want := request.Info{
			IsResource: true, Verb: "request-serviceaccounts-token-audience", Version: "v1", Namespace: "ns", Resource: "granted", Name: "sa",
		}
		if *info == want {
			return authz.Allow, ""
		}
		return authz.NoOpinion, ""
	})
}

func csiNode(name string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// claimed returns a claim that is bound to a volume of that size.
func claimed(size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status: corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
	}
}

func TestWhatNodeAMayWrite(t *testing.T) {
	objects := admissiontest.Objects{"pods/mine": pod("mine", "a", tokens("", "vault")), "pods/tokenless": pod("tokenless", "a"), "pods/theirs": pod("theirs", "b"), "nodes/a": node("a"), "nodes/b": node("b"),
		"pods/stored":                 pod("stored", "a", volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})),
		"pods/scratched":              pod("scratched", "a", volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})),
		"persistentvolumeclaims/data": claimed("1Gi"), "persistentvolumeclaims/scratched-v": claimed("1Gi"),
		"persistentvolumes/pv": &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks"}}}},
		"csidrivers/disks": &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "disks"}}}},
	}
	renamed := claimed("1Gi")
	renamed.Spec.VolumeName = "other"
	kinds := map[string]*scheme.Kind{}
	for _, k := range scheme.New().Kinds() {
		kinds[k.Resource] = k
	}
	lease := func(ns, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	}
	turn := func(holder string, since time.Duration) *coordinationv1.Lease {
		l, seconds, at := lease("kube-system", "podium-upgrade"), int32(60), metav1.NewMicroTime(time.Now().Add(-since))
		l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at}
		return l
	}
	tainted := node("a")
	tainted.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	owned := node("a")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest", Name: "gone", UID: "gone"}}
	unbound := &authenticationv1.TokenRequest{}
	other := token("mine")
	other.Spec.BoundObjectRef.UID = "another"
	without := token("mine")
	without.Spec.BoundObjectRef.UID = ""
	secret := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}
	for name, row := range map[string]struct {
		op       admission.Operation
		resource string
		name     string
		old, new scheme.Object
		body     runtime.Object
		want     string // part of the error; "": allowed
	}{
		"status of its pod":                {admission.Update, "pods/status", "mine", pod("mine", "a"), pod("mine", "a"), nil, ""},
		"status of another's pod":          {admission.Update, "pods/status", "theirs", pod("theirs", "b"), pod("theirs", "b"), nil, "can only update pod status for pods with spec.nodeName set to itself"},
		"status of a pod on no node":       {admission.Update, "pods/status", "free", pod("free", ""), pod("free", ""), nil, "can only update pod status"},
		"labels by way of the status":      {admission.Update, "pods/status", "mine", pod("mine", "a"), pod("mine", "a", labelled), nil, "cannot update labels through pod status"},
		"claims by way of the status":      {admission.Update, "pods/status", "mine", pod("mine", "a"), pod("mine", "a", claiming), nil, "cannot update resource claim statues"},
		"extended resources by the status": {admission.Update, "pods/status", "mine", pod("mine", "a"), pod("mine", "a", standing), nil, "cannot update extended resource claim status"},
		"the pod itself":                   {admission.Update, "pods", "mine", pod("mine", "a"), pod("mine", "a"), nil, "can only create and delete mirror pods"},
		"delete its pod":                   {admission.Delete, "pods", "mine", pod("mine", "a"), nil, nil, ""},
		"delete another's pod":             {admission.Delete, "pods", "theirs", pod("theirs", "b"), nil, nil, "can only delete pods with spec.nodeName set to itself"},
		"evict its pod":                    {admission.Create, "pods/eviction", "mine", nil, nil, nil, ""},
		"evict another's pod":              {admission.Create, "pods/eviction", "theirs", nil, nil, nil, "can only evict pods"},
		"evict nothing":                    {admission.Create, "pods/eviction", "ghost", nil, nil, nil, "not found"},
		"bind a pod":                       {admission.Create, "pods/binding", "mine", nil, nil, nil, `unexpected pod subresource "binding"`},
		"exec into its pod":                {admission.Connect, "pods/exec", "mine", nil, nil, nil, `unexpected pod subresource "exec"`},
		"a mirror pod":                     {admission.Create, "pods", "static-a", nil, mirror(), nil, ""},
		"a pod that is no mirror":          {admission.Create, "pods", "p", nil, pod("p", "a"), nil, "can only create mirror pods"},
		"a mirror on another node":         {admission.Create, "pods", "p", nil, mirror(func(p *corev1.Pod) { p.Spec.NodeName = "b" }), nil, "can only create pods with spec.nodeName set to itself"},
		"a mirror without owner":           {admission.Create, "pods", "p", nil, mirror(func(p *corev1.Pod) { p.OwnerReferences = nil }), nil, "with an owner reference set to itself"},
		"a mirror of another node":         {admission.Create, "pods", "p", nil, mirror(func(p *corev1.Pod) { p.OwnerReferences[0].Name = "b" }), nil, "with an owner reference set to itself"},
		"a mirror of an earlier node":      {admission.Create, "pods", "p", nil, mirror(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "old" }), nil, "UID mismatch"},
		"a mirror that keeps the node":     {admission.Create, "pods", "p", nil, mirror(func(p *corev1.Pod) { p.OwnerReferences[0].BlockOwnerDeletion = new(true) }), nil, "must not set blockOwnerDeletion"},
		"a mirror with an account":         {admission.Create, "pods", "p", nil, mirror(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "root" }), nil, "reference serviceaccounts"},
		"a mirror with a secret volume":    {admission.Create, "pods", "p", nil, mirror(volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}})), nil, "reference secrets"},
		"a mirror with a projected token":  {admission.Create, "pods", "p", nil, mirror(volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}})), nil, "reference serviceaccounts"},
		"a mirror with a config map":       {admission.Create, "pods", "p", nil, mirror(container(corev1.Container{EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}})), nil, "reference configmaps"},
		"a mirror with a secret variable":  {admission.Create, "pods", "p", nil, mirror(container(corev1.Container{Env: []corev1.EnvVar{{Name: "A"}, {Name: "B", ValueFrom: secret}}})), nil, "reference secrets"},
		"a mirror with a resource claim":   {admission.Create, "pods", "p", nil, mirror(func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }), nil, "reference resourceclaims"},
		"a mirror with a target's secret":  {admission.Create, "pods", "p", nil, mirror(volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: &corev1.LocalObjectReference{}}})), nil, "reference secrets"},
		"a mirror with a certificate":      {admission.Create, "pods", "p", nil, mirror(volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{}}}}})), nil, "reference podcertificates"},
		"a mirror with a claim":            {admission.Create, "pods", "p", nil, mirror(volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}})), nil, "reference persistentvolumeclaims"},
		"a mirror with a device": {admission.Create, "pods", "p", nil, mirror(func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
		}), nil, "reference resourceclaims"},
		"a mirror with an empty folder": {admission.Create, "pods", "p", nil, mirror(volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})), nil, ""},

		"its node":                {admission.Create, "nodes", "a", nil, node("a", "kubernetes.io/hostname=a", "disk=ssd", "node.kubernetes.io/kind=big"), nil, ""},
		"another node":            {admission.Create, "nodes", "b", nil, node("b"), nil, `is not allowed to modify node "b"`},
		"another node's status":   {admission.Update, "nodes/status", "b", node("b"), node("b"), nil, `is not allowed to modify node "b"`},
		"its status":              {admission.Update, "nodes/status", "a", node("a"), node("a"), nil, ""},
		"the role control plane":  {admission.Create, "nodes", "a", nil, node("a", "node-role.kubernetes.io/control-plane="), nil, "is not allowed to set the following labels: node-role.kubernetes.io/control-plane"},
		"a label kept from nodes": {admission.Update, "nodes", "a", node("a"), node("a", "x.node-restriction.kubernetes.io/pci=true"), nil, "is not allowed to modify labels: x.node-restriction"},
		"without that label":      {admission.Update, "nodes/status", "a", node("a", "node-restriction.kubernetes.io/pci=true"), node("a"), nil, "is not allowed to modify labels: node-restriction"},
		"a label of its own":      {admission.Update, "nodes", "a", node("a"), node("a", "example.com/rack=7", "topology.kubernetes.io/zone=z"), nil, ""},
		"its taints":              {admission.Update, "nodes", "a", tainted, node("a"), nil, "is not allowed to modify taints"},
		"an owner that is gone":   {admission.Update, "nodes", "a", node("a"), owned, nil, "is not allowed to modify ownerReferences"},
		"an owner by the status":  {admission.Update, "nodes/status", "a", node("a"), owned, nil, "is not allowed to modify ownerReferences"},
		"born with an owner":      {admission.Create, "nodes", "a", nil, owned, nil, "is not allowed to set ownerReferences"},
		"an owner that stays":     {admission.Update, "nodes", "a", owned, owned, nil, ""},
		"delete another node":     {admission.Delete, "nodes", "b", node("b"), nil, nil, `is not allowed to modify node "b"`},
		"delete itself":           {admission.Delete, "nodes", "a", node("a"), nil, nil, ""},

		"a token of its pod":              {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("mine"), ""},
		"a token for a volume's audience": {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("mine", "vault"), ""},
		"a token for another audience":    {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("mine", "bank"), `audience "bank" not found in pod spec volume, system:node:a is not authorized to request tokens for this audience`},
		"a token for a granted audience":  {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("mine", "granted"), ""},
		"a token for two audiences":       {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("mine", "vault", "bank"), "node may only request 0 or 1 audiences"},
		"a token that no volume wants":    {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("tokenless"), `audience "" not found in pod spec volume`},
		"a token of another's pod":        {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("theirs"), "pod scheduled on a different node"},
		"a token bound to nothing":        {admission.Create, "serviceaccounts/token", "sa", nil, nil, unbound, "not bound to a pod"},
		"a token of an earlier pod":       {admission.Create, "serviceaccounts/token", "sa", nil, nil, other, "does not match the UID in record"},
		"a token of any pod of the name":  {admission.Create, "serviceaccounts/token", "sa", nil, nil, without, "without a uid"},
		"a token of no pod":               {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("ghost"), "not found"},

		"a token for its CSI driver":     {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("stored", "disks"), ""},
		"a token for its ephemeral one":  {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("scratched", "disks"), ""},
		"a token for no driver of a pod": {admission.Create, "serviceaccounts/token", "sa", nil, nil, token("mine", "disks"), `audience "disks" not found in pod spec volume`},

		"its CSINode":             {admission.Create, "csinodes", "a", nil, csiNode("a"), nil, ""},
		"another's CSINode":       {admission.Create, "csinodes", "b", nil, csiNode("b"), nil, "can only access CSINode with the same name as the requesting node"},
		"another's CSINode again": {admission.Update, "csinodes", "b", csiNode("b"), csiNode("b"), nil, "can only access CSINode with the same name"},
		"the size of a claim":     {admission.Update, "persistentvolumeclaims/status", "data", claimed("1Gi"), claimed("2Gi"), nil, ""},
		"the volume of a claim":   {admission.Update, "persistentvolumeclaims/status", "data", claimed("1Gi"), renamed, nil, "is not allowed to update fields other than"},
		"the claim itself":        {admission.Update, "persistentvolumeclaims", "data", claimed("1Gi"), claimed("1Gi"), nil, "may only update PVC status"},

		"its lease":                 {admission.Update, "leases", "a", lease("kube-node-lease", "a"), lease("kube-node-lease", "a"), nil, ""},
		"another's lease":           {admission.Update, "leases", "b", lease("kube-node-lease", "b"), lease("kube-node-lease", "b"), nil, "same name as the requesting node"},
		"the leader's lease":        {admission.Update, "leases", "a", lease("kube-system", "a"), lease("kube-system", "a"), nil, `"kube-node-lease" system namespace`},
		"its turn, the first":       {admission.Create, "leases", "podium-upgrade", nil, turn("a", 0), nil, ""},
		"its turn, given back":      {admission.Update, "leases", "podium-upgrade", turn("a", 0), turn("", 0), nil, ""},
		"its turn, after another's": {admission.Update, "leases", "podium-upgrade", turn("b", 2*time.Minute), turn("a", 0), nil, ""},
		"another's turn":            {admission.Update, "leases", "podium-upgrade", turn("b", time.Second), turn("a", 0), nil, `is held by "b"`},
		"another's turn, ended":     {admission.Update, "leases", "podium-upgrade", turn("b", time.Second), turn("", 0), nil, `is held by "b"`},
		"a turn for another":        {admission.Update, "leases", "podium-upgrade", turn("", 0), turn("b", 0), nil, "only take the lease"},
		"away with the turns":       {admission.Delete, "leases", "podium-upgrade", turn("a", 0), nil, nil, "not allowed to delete"},
		"what else there is":        {admission.Create, "events", "e", nil, &corev1.Event{}, nil, ""},
	} {
		resource, sub, _ := strings.Cut(row.resource, "/")
		a := &admission.Attributes{Operation: row.op, Resource: kinds[resource].GVR(), Subresource: sub, Name: row.name, Old: row.old, Object: row.new, Body: row.body,
			User: &request.User{Name: "system:node:a", Groups: []string{"system:nodes"}}}
		if kinds[resource].Namespaced {
			a.Namespace = "ns"
		}
		for _, obj := range []scheme.Object{row.old, row.new} {
			if obj != nil && obj.GetNamespace() != "" {
				a.Namespace = obj.GetNamespace()
			}
		}
		err := noderestriction.New(admission.Host{Objects: objects, Authorizer: grants()}).Mutate(t.Context(), a)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
		a.User = &request.User{Name: "ann", Groups: []string{"system:masters"}}
		if err := noderestriction.New(admission.Host{Objects: objects, Authorizer: grants()}).Mutate(t.Context(), a); err != nil {
			t.Errorf("%s, by one who is no node: %v", name, err)
		}
	}
}

func TestWhatAProxyMayWrite(t *testing.T) {
	kinds := map[string]*scheme.Kind{}
	for _, k := range scheme.New().Kinds() {
		kinds[k.Resource] = k
	}
	for name, row := range map[string]struct {
		op                        admission.Operation
		resource, namespace, name string
		allowed                   bool
		change                    func(*coordinationv1.Lease) // the change, for an update
	}{
		"its lease":               {admission.Create, "leases", "kube-system", "kube-proxy-a", true, nil},
		"its last word":           {admission.Delete, "leases", "kube-system", "kube-proxy-a", true, nil},
		"the scheduler's":         {admission.Update, "leases", "kube-system", "kube-scheduler", false, nil},
		"away with the leader's":  {admission.Delete, "leases", "kube-system", "kube-controller-manager", false, nil},
		"a lease without a name":  {admission.Create, "leases", "kube-system", "", false, nil},
		"a node's, by its prefix": {admission.Update, "leases", "kube-node-lease", "kube-proxy-a", false, nil},
		"what a role allows":      {admission.Create, "events", "default", "e", true, nil},
		"who has an address":      {admission.Update, "leases", "kube-system", "load-balancer-10.0.0.1", true, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("a") }},
		"whose the address is": {admission.Update, "leases", "kube-system", "load-balancer-10.0.0.1", false, func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{"podium.dev/service": "mine/web"}
		}},
		"that it is in use again":    {admission.Update, "leases", "kube-system", "load-balancer-10.0.0.1", false, func(l *coordinationv1.Lease) { l.Annotations = nil }},
		"an address out of sight":    {admission.Update, "leases", "kube-system", "load-balancer-10.0.0.1", false, func(l *coordinationv1.Lease) { l.Labels = map[string]string{} }},
		"an owner of the address":    {admission.Update, "leases", "kube-system", "load-balancer-10.0.0.1", false, func(l *coordinationv1.Lease) { l.OwnerReferences = []metav1.OwnerReference{{Name: "gone"}} }},
		"one more address":           {admission.Create, "leases", "kube-system", "load-balancer-10.0.0.1", false, nil},
		"no address any more":        {admission.Delete, "leases", "kube-system", "load-balancer-10.0.0.1", false, nil},
		"an address of its own room": {admission.Update, "leases", "default", "load-balancer-10.0.0.1", false, nil},
	} {
		for _, user := range []string{"system:kube-proxy", "system:serviceaccount:kube-system:kube-proxy"} {
			a := &admission.Attributes{Operation: row.op, Resource: kinds[row.resource].GVR(), Namespace: row.namespace, Name: row.name, User: &request.User{Name: user}}
			if row.op == admission.Update {
				old := addresslease.New(netip.MustParseAddr("10.0.0.1"), types.NamespacedName{Namespace: "shop", Name: "web"})
				addresslease.Close(old)
				now := old.DeepCopy()
				if row.change != nil {
					row.change(now)
				}
				a.Old, a.Object = old, now
			}
			if err := noderestriction.New(admission.Host{Objects: admissiontest.Objects{}, Authorizer: grants()}).Mutate(t.Context(), a); (err == nil) != row.allowed || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("%s, as %s: %v", name, user, err)
			}
		}
	}
}
