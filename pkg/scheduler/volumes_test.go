package scheduler_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
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
			t: t, pods: client.For[*corev1.Pod](c).In("default"), claims: client.For[*corev1.PersistentVolumeClaim](c).In("default"),
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
func (d *disks) pod(name, claim string) {
	d.t.Helper()
	p := realPod(name, "10m")
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
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
		d.on("p", "", "")
		d.volume("v", "made", node)
		d.bind("data", "v")
		d.on("p", node, "")
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
