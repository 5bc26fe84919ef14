package scheduler_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/scheduler"
)

// disks is a cluster of the nodes a and b with claims and volumes. The test binds claims
// itself, as the controller and a provisioner would.
type disks struct {
	t       *testing.T
	api     *client.Client
	pods    client.Resource[*corev1.Pod]
	claims  client.Resource[*corev1.PersistentVolumeClaim]
	volumes client.Resource[*corev1.PersistentVolume]
}

func withDisks(t *testing.T, f func(d *disks)) {
	synctest.Test(t, func(t *testing.T) {
		c := realWorld(t)
		for _, name := range []string{"a", "b"} {
			n := node(name, "4", "8Gi")
			n.Labels = map[string]string{corev1.LabelHostname: name}
			addNode(t, c, n)
		}
		wait := storagev1.VolumeBindingWaitForFirstConsumer
		for class, provisioner := range map[string]string{"made": "disks.example.com", "static": "kubernetes.io/no-provisioner"} {
			_, err := client.For[*storagev1.StorageClass](c).Create(t.Context(), &storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: provisioner, VolumeBindingMode: &wait,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		d := &disks{
			t: t, api: c, pods: client.For[*corev1.Pod](c).In("default"), claims: client.For[*corev1.PersistentVolumeClaim](c).In("default"),
			volumes: client.For[*corev1.PersistentVolume](c),
		}
		stop := run(t, scheduler.Config{Client: c})
		f(d)
		stop()
	})
}

func (d *disks) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *disks) claim(name, class string, mode corev1.PersistentVolumeAccessMode) {
	d.t.Helper()
	_, err := d.claims.Create(d.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{mode}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	})
	d.must(err)
}

// volume creates a free volume on a node.
func (d *disks) volume(name, class, on string) {
	d.t.Helper()
	v, err := d.volumes.Create(d.t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany}, StorageClassName: class,
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/disk"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{on}}},
			}}}},
		},
	})
	d.must(err)
	v.Status.Phase = corev1.VolumeAvailable
	_, err = d.volumes.UpdateStatus(d.t.Context(), v)
	d.must(err)
}

// bind completes the binding of a claim.
func (d *disks) bind(claim, volume string) {
	d.t.Helper()
	c, err := d.claims.Get(d.t.Context(), claim)
	d.must(err)
	c.Spec.VolumeName = volume
	c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	c, err = d.claims.Update(d.t.Context(), c)
	d.must(err)
	c.Status.Phase = corev1.ClaimBound
	_, err = d.claims.UpdateStatus(d.t.Context(), c)
	d.must(err)
}

// pod creates a pod that uses a claim.
func (d *disks) pod(name, claim string, change ...func(*corev1.Pod)) {
	d.t.Helper()
	p := realPod(name, "10m")
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	for _, f := range change {
		f(p)
	}
	_, err := d.pods.Create(d.t.Context(), p)
	d.must(err)
}

// on wants a pod to be on a node, "" for none, after a while, for that reason.
func (d *disks) on(pod, node, reason string) {
	d.t.Helper()
	time.Sleep(2 * time.Minute)
	p, err := d.pods.Get(d.t.Context(), pod)
	d.must(err)
	if got := condition(p); p.Spec.NodeName != node || reason != "" && got != "False Unschedulable "+reason {
		d.t.Errorf("%s is on %q, want %q: %s", pod, p.Spec.NodeName, node, got)
	}
}

// nominated wants a node in the pod's status.
func (d *disks) nominated(pod, node string) {
	d.t.Helper()
	p, err := d.pods.Get(d.t.Context(), pod)
	d.must(err)
	if got := p.Status.NominatedNodeName; got != node {
		d.t.Errorf("%s is nominated for %q, want %q", pod, got, node)
	}
}

func (d *disks) selected(claim string) string {
	d.t.Helper()
	c, err := d.claims.Get(d.t.Context(), claim)
	d.must(err)
	return c.Annotations["volume.kubernetes.io/selected-node"]
}

func TestPodsFollowTheirVolumes(t *testing.T) {
	withDisks(t, func(d *disks) {
		const helpless = "0/2 nodes are available: 2 %s. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling. a, b: %[1]s."
		d.claim("data", "", corev1.ReadWriteOnce)
		d.pod("p", "data")
		d.on("p", "", fmt.Sprintf(helpless, "pod has unbound immediate PersistentVolumeClaims"))
		d.volume("v", "", "b")
		d.bind("data", "v")
		d.on("p", "b", "")
		d.pod("lost", "absent")
		d.on("lost", "", fmt.Sprintf(helpless, `persistentvolumeclaim "absent" not found`))
	})
}

// A pod waits for the claim of its ephemeral volume, and does not use the claim of another
// pod, nor one that is exclusive and in use.
func TestEphemeralVolumesNeedTheirOwnClaim(t *testing.T) {
	withDisks(t, func(d *disks) {
		const helpless = "0/2 nodes are available: 2 %s. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling. a, b: %[1]s."
		d.claim("early-data", "", corev1.ReadWriteOnce)
		early := d.scratch("early")
		d.on("early", "", fmt.Sprintf(helpless, "PVC default/early-data was not created for pod default/early (pod is not owner)"))
		d.own("early-data", early)
		d.volume("v", "", "b")
		d.bind("early-data", "v")
		d.on("early", "b", "")

		late := d.scratch("late")
		d.on("late", "", fmt.Sprintf(helpless, `waiting for ephemeral volume controller to create the persistentvolumeclaim "late-data"`))
		d.claim("late-data", "made", corev1.ReadWriteOncePod)
		d.own("late-data", late)
		time.Sleep(time.Minute)
		node := d.selected("late-data")
		if node == "" {
			t.Fatal("no node is selected for the claim")
		}
		d.volume("w", "made", node)
		d.bind("late-data", "w")
		d.on("late", node, "")
		d.pod("thief", "late-data")
		d.on("thief", "", "")
	})
}

// scratch creates a pod with an ephemeral volume "data".
func (d *disks) scratch(name string) *corev1.Pod {
	d.t.Helper()
	p := realPod(name, "10m")
	class := "made"
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
	}}}}
	p, err := d.pods.Create(d.t.Context(), p)
	d.must(err)
	return p
}

// own makes a pod the controller of a claim.
func (d *disks) own(claim string, pod *corev1.Pod) {
	d.t.Helper()
	c, err := d.claims.Get(d.t.Context(), claim)
	d.must(err)
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}}
	_, err = d.claims.Update(d.t.Context(), c)
	d.must(err)
}

func TestClaimsWaitForTheirFirstPod(t *testing.T) {
	withDisks(t, func(d *disks) {
		d.volume("disk", "static", "b")
		d.claim("one", "static", corev1.ReadWriteOnce)
		d.claim("two", "static", corev1.ReadWriteOnce)
		d.pod("first", "one")
		time.Sleep(time.Second)
		d.pod("second", "two")
		time.Sleep(time.Second)
		v, err := d.volumes.Get(d.t.Context(), "disk")
		d.must(err)
		if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Name != "one" {
			d.t.Fatalf("the volume refers to %v", v.Spec.ClaimRef)
		}
		d.on("first", "", "") // it waits for its claim
		d.bind("one", "disk")
		d.on("first", "b", "")
		d.on("second", "", "")
	})
}

func TestVolumesAreProvisionedForTheNodeOfThePod(t *testing.T) {
	withDisks(t, func(d *disks) {
		d.claim("data", "made", corev1.ReadWriteOnce)
		d.pod("p", "data")
		time.Sleep(time.Second)
		first := d.selected("data")
		if first == "" {
			d.t.Fatal("no node is selected")
		}
		d.nominated("p", first)
		// The provisioner cannot: another attempt follows.
		c, err := d.claims.Get(d.t.Context(), "data")
		d.must(err)
		delete(c.Annotations, "volume.kubernetes.io/selected-node")
		_, err = d.claims.Update(d.t.Context(), c)
		d.must(err)
		time.Sleep(time.Minute)
		node := d.selected("data")
		if node == "" {
			d.t.Fatal("no node is selected again")
		}
		d.nominated("p", node)
		d.on("p", "", "")
		d.volume("v", "made", node)
		d.bind("data", "v")
		d.on("p", node, "")
		d.nominated("p", "")
	})
}

// A restarted scheduler continues on the node that it had selected.
func TestSelectedNodesStay(t *testing.T) {
	withDisks(t, func(d *disks) {
		d.claim("data", "made", corev1.ReadWriteOnce)
		c, err := d.claims.Get(d.t.Context(), "data")
		d.must(err)
		c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "b"}
		_, err = d.claims.Update(d.t.Context(), c)
		d.must(err)
		d.pod("p", "data")
		time.Sleep(time.Second)
		d.volume("v", "made", "b")
		d.bind("data", "v")
		d.on("p", "b", "")
	})
}

func TestOnePodUsesAnExclusiveClaim(t *testing.T) {
	withDisks(t, func(d *disks) {
		d.claim("data", "", corev1.ReadWriteOncePod)
		d.volume("v", "", "a")
		d.bind("data", "v")
		d.pod("first", "data")
		d.on("first", "a", "")
		d.pod("second", "data")
		d.on("second", "", "")
		now := int64(0)
		d.must(d.pods.Delete(d.t.Context(), "first", metav1.DeleteOptions{GracePeriodSeconds: &now}))
		d.on("second", "a", "")
	})
}

// TestExclusiveClaimIsPreempted checks that a pod evicts the one of lower priority that uses
// its claim, and no other pod.
func TestExclusiveClaimIsPreempted(t *testing.T) {
	withDisks(t, func(d *disks) {
		_, err := client.For[*schedulingv1.PriorityClass](d.api).Create(d.t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000})
		d.must(err)
		d.claim("data", "", corev1.ReadWriteOncePod)
		d.volume("v", "", "a")
		d.bind("data", "v")
		d.claim("other", "", corev1.ReadWriteOncePod)
		d.volume("w", "", "a")
		d.bind("other", "w")
		d.pod("bystander", "other")
		d.pod("first", "data")
		d.on("first", "a", "")
		d.pod("equal", "data")
		const taken = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
		d.on("equal", "", "0/2 nodes are available: 1 node(s) had volume node affinity conflict, 1 "+taken+". preemption: 0/2 nodes are available: "+
			"1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling. a: "+taken+"; b: node(s) had volume node affinity conflict.")
		d.pod("vip", "data", func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" })
		time.Sleep(2 * time.Minute)
		for name, evicted := range map[string]bool{"first": true, "equal": false, "bystander": false} {
			p, err := d.pods.Get(d.t.Context(), name)
			d.must(err)
			if got := p.DeletionTimestamp != nil; got != evicted {
				d.t.Errorf("%s is evicted: %t, want %t", name, got, evicted)
			}
		}
		now := int64(0)
		d.must(d.pods.Delete(d.t.Context(), "first", metav1.DeleteOptions{GracePeriodSeconds: &now}))
		d.on("vip", "a", "")
		d.on("equal", "", "")
	})
}

// TestTargetsHaveOneWriterOnANode checks that pods of a node do not use one iSCSI target,
// unless all of them only read it.
func TestTargetsHaveOneWriterOnANode(t *testing.T) {
	withDisks(t, func(d *disks) {
		pod := func(name, iqn string, readOnly bool) {
			d.t.Helper()
			p := realPod(name, "10m")
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: iqn, ReadOnly: readOnly},
			}}}
			_, err := d.pods.Create(d.t.Context(), p)
			d.must(err)
			time.Sleep(2 * time.Minute)
		}
		nodeOf := func(name string) string {
			p, err := d.pods.Get(d.t.Context(), name)
			d.must(err)
			return p.Spec.NodeName
		}
		pod("writer", "iqn.2001-04.com.example:x", false)
		pod("reader", "iqn.2001-04.com.example:x", true)
		if w, r := nodeOf("writer"), nodeOf("reader"); w == "" || r == "" || w == r {
			d.t.Errorf("the writer is on %q and the reader on %q, want two nodes", w, r)
		}
		pod("another-reader", "iqn.2001-04.com.example:x", true)
		if got := nodeOf("another-reader"); got != nodeOf("reader") {
			d.t.Errorf("another reader is on %q, want the reader's node", got)
		}
		pod("another-writer", "iqn.2001-04.com.example:x", false)
		d.on("another-writer", "", "0/2 nodes are available: 2 node(s) had no available disk. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod. a, b: node(s) had no available disk.")
		pod("elsewhere", "iqn.2001-04.com.example:y", false)
		if nodeOf("elsewhere") == "" {
			d.t.Error("a pod with another target waits")
		}
		now := int64(0)
		d.must(d.pods.Delete(d.t.Context(), "writer", metav1.DeleteOptions{GracePeriodSeconds: &now}))
		time.Sleep(2 * time.Minute)
		if nodeOf("another-writer") == "" {
			d.t.Error("a writer waits after the other one is gone")
		}
	})
}

// csiVolume creates a CSI volume that is bound to a claim of the same name.
func (d *disks) csiVolume(name string, labels map[string]string) {
	d.t.Helper()
	_, err := d.volumes.Create(d.t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "static",
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example.com", VolumeHandle: name}},
		},
	})
	d.must(err)
	d.claim(name, "static", corev1.ReadWriteOnce)
	d.bind(name, name)
}

// limit says how many volumes a node may have.
func (d *disks) limit(node string, count int32) {
	d.t.Helper()
	_, err := client.For[*storagev1.CSINode](d.api).Create(d.t.Context(), &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "disks.example.com", NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: &count}},
		}},
	})
	d.must(err)
}

// A node gets no more volumes of a driver than its CSINode says. A pod fits again when the
// limit grows.
func TestNodesHaveALimitOfVolumes(t *testing.T) {
	withDisks(t, func(d *disks) {
		d.limit("a", 1)
		d.limit("b", 1)
		used := map[string]bool{}
		for _, name := range []string{"one", "two"} {
			d.csiVolume(name, nil)
			d.pod(name, name)
			time.Sleep(2 * time.Minute)
			p, err := d.pods.Get(d.t.Context(), name)
			d.must(err)
			used[p.Spec.NodeName] = true
		}
		if !used["a"] || !used["b"] {
			d.t.Errorf("the pods are on %v", used)
		}
		d.csiVolume("three", nil)
		d.pod("three", "three")
		d.on("three", "", "0/2 nodes are available: 2 node(s) exceed max volume count. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod. a, b: node(s) exceed max volume count.")
		d.pod("shared", "one") // a volume that a node has already
		time.Sleep(2 * time.Minute)
		if p, err := d.pods.Get(d.t.Context(), "shared"); err != nil || p.Spec.NodeName == "" {
			d.t.Errorf("a pod with a volume that is there: %v", err)
		}
		nodes := client.For[*storagev1.CSINode](d.api)
		n, err := nodes.Get(d.t.Context(), "b")
		d.must(err)
		n.Spec.Drivers[0].Allocatable.Count = new(int32(2))
		_, err = nodes.Update(d.t.Context(), n)
		d.must(err)
		d.on("three", "b", "")
	})
}

// A volume takes its place on a node until it is detached, not only as long as a pod uses it.
func TestAttachedVolumesCount(t *testing.T) {
	withDisks(t, func(d *disks) {
		d.limit("a", 1)
		d.limit("b", 0)
		d.csiVolume("one", nil)
		d.pod("one", "one")
		d.on("one", "a", "")
		attachments := client.For[*storagev1.VolumeAttachment](d.api)
		_, err := attachments.Create(d.t.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "one-a"}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "disks.example.com", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("one")},
		}})
		d.must(err)
		d.pod("again", "one") // it counts once
		d.on("again", "a", "")
		now := int64(0)
		for _, name := range []string{"one", "again"} {
			d.must(d.pods.Delete(d.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
		}
		d.csiVolume("two", nil)
		d.pod("two", "two")
		d.on("two", "", "0/2 nodes are available: 2 node(s) exceed max volume count. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod. a, b: node(s) exceed max volume count.")
		d.must(attachments.Delete(d.t.Context(), "one-a", metav1.DeleteOptions{}))
		d.on("two", "a", "")
	})
}

// The answer for a claim that no volume fits is not the answer for a claim that is bound.
func TestBoundClaimsAreUnlikeThoseWithoutVolumes(t *testing.T) {
	withDisks(t, func(d *disks) {
		d.claim("none", "static", corev1.ReadWriteOnce)
		d.pod("waiting", "none")
		d.on("waiting", "", "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling. a, b: node(s) didn't find available persistent volumes to bind.")
		d.csiVolume("bound", nil)
		d.pod("p", "bound")
		time.Sleep(2 * time.Minute)
		if p, err := d.pods.Get(d.t.Context(), "p"); err != nil || p.Spec.NodeName == "" {
			d.t.Errorf("a pod whose claim is bound waits: %s, %v", condition(p), err)
		}
	})
}

func TestPodsAreInTheZoneOfTheirVolumes(t *testing.T) {
	withDisks(t, func(d *disks) {
		nodes := client.For[*corev1.Node](d.api)
		for _, name := range []string{"a", "b"} {
			n, err := nodes.Get(d.t.Context(), name)
			d.must(err)
			n.Labels[corev1.LabelTopologyZone] = "zone-" + name
			_, err = nodes.Update(d.t.Context(), n)
			d.must(err)
		}
		d.csiVolume("data", map[string]string{corev1.LabelTopologyZone: "zone-b"})
		d.pod("p", "data")
		d.on("p", "b", "")
		d.csiVolume("far", map[string]string{corev1.LabelTopologyZone: "zone-c"})
		d.pod("q", "far")
		d.on("q", "", "0/2 nodes are available: 2 node(s) had no available volume zone. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling. a, b: node(s) had no available volume zone.")
	})
}

// A driver that publishes capacities gets pods only where there is space.
func TestVolumesAreProvisionedWhereThereIsSpace(t *testing.T) {
	withDisks(t, func(d *disks) {
		_, err := client.For[*storagev1.CSIDriver](d.api).Create(d.t.Context(), &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: "disks.example.com"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(true)},
		})
		d.must(err)
		d.claim("data", "made", corev1.ReadWriteOnce)
		d.pod("p", "data")
		d.on("p", "", "0/2 nodes are available: 2 node(s) did not have enough free storage. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling. a, b: node(s) did not have enough free storage.")
		for node, size := range map[string]string{"a": "500Mi", "b": "2Gi"} {
			_, err := client.For[*storagev1.CSIStorageCapacity](d.api).In("default").Create(d.t.Context(), &storagev1.CSIStorageCapacity{
				ObjectMeta: metav1.ObjectMeta{Name: node}, StorageClassName: "made", Capacity: new(resource.MustParse(size)),
				NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node}},
			})
			d.must(err)
		}
		time.Sleep(2 * time.Minute)
		if got := d.selected("data"); got != "b" {
			d.t.Errorf("the node %q is selected, want b", got)
		}
	})
}
