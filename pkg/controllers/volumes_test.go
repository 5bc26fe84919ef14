package controllers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

func claimOf(name, size, class string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}
	for _, f := range change {
		f(claim)
	}
	return claim
}

func volumeOf(name, size, class string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: class,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data/" + name}},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		},
	}
	for _, f := range change {
		f(v)
	}
	return v
}

func (c *cluster) claim(name string) *corev1.PersistentVolumeClaim {
	claim, err := client.For[*corev1.PersistentVolumeClaim](c.Client).In("default").Get(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return claim
}

func (c *cluster) volume(name string) *corev1.PersistentVolume {
	v, err := client.For[*corev1.PersistentVolume](c.Client).Get(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// boundSoon waits until a claim is bound to a volume, and the volume to the claim.
func (c *cluster) boundSoon(claim, volume string) {
	c.t.Helper()
	c.until(time.Minute, claim+" is bound to "+volume, func() bool {
		p, v := c.claim(claim), c.volume(volume)
		return p.Status.Phase == corev1.ClaimBound && p.Spec.VolumeName == volume && v.Status.Phase == corev1.VolumeBound && v.Spec.ClaimRef.UID == p.UID
	})
}

func (c *cluster) volumeSoon(name string, phase corev1.PersistentVolumePhase) {
	c.t.Helper()
	c.until(time.Minute, fmt.Sprintf("volume %s is %s", name, phase), func() bool { return c.volume(name).Status.Phase == phase })
}

func TestClaimsGetTheSmallestVolumeThatFits(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		shared := func(v *corev1.PersistentVolume) {
			v.Spec.AccessModes = append(v.Spec.AccessModes, corev1.ReadWriteMany)
		}
		for _, v := range []*corev1.PersistentVolume{
			volumeOf("small", "1Gi", ""), volumeOf("medium", "5Gi", ""), volumeOf("large", "10Gi", "", shared),
			volumeOf("fast", "3Gi", "fast"), volumeOf("labelled", "2Gi", "", func(v *corev1.PersistentVolume) { v.Labels = map[string]string{"disk": "ssd"} }),
			volumeOf("reserved", "1Gi", "", func(v *corev1.PersistentVolume) {
				v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "expected"}
			}),
		} {
			create(c, v)
		}
		c.volumeSoon("medium", corev1.VolumeAvailable)
		create(c, claimOf("three", "3Gi", ""))
		c.boundSoon("three", "medium")
		create(c, claimOf("many", "1Gi", "", func(p *corev1.PersistentVolumeClaim) {
			p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}))
		c.boundSoon("many", "large")
		create(c, claimOf("fast", "1Gi", "fast"))
		c.boundSoon("fast", "fast")
		create(c, claimOf("ssd", "1Gi", "", func(p *corev1.PersistentVolumeClaim) {
			p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "ssd"}}
		}))
		c.boundSoon("ssd", "labelled")
		create(c, claimOf("expected", "1Gi", ""))
		c.boundSoon("expected", "reserved")
		create(c, claimOf("named", "1Gi", "", func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeName = "small" }))
		c.boundSoon("named", "small")
		create(c, claimOf("none", "1Gi", ""))
		c.quiet()
		if got := c.claim("none").Status.Phase; got != corev1.ClaimPending {
			t.Errorf("a claim without a volume is %s", got)
		}
		if got := c.claim("three").Status.Capacity[corev1.ResourceStorage]; got.String() != "5Gi" {
			t.Errorf("the claim has %s", got.String())
		}
		create(c, volumeOf("late", "1Gi", ""))
		c.boundSoon("none", "late")
	})
}

// A claim that names no class gets the default class when there is one, unless a volume without
// a class fits it.
func TestDefaultClassIsAssignedLater(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		classless := func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = nil }
		create(c, claimOf("early", "1Gi", "", classless))
		create(c, claimOf("satisfied", "1Gi", "", classless))
		create(c, claimOf("empty", "1Gi", ""))
		create(c, claimOf("annotated", "1Gi", "", classless, func(p *corev1.PersistentVolumeClaim) {
			p.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: ""}
		}))
		create(c, volumeOf("v", "1Gi", "", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "satisfied"}
		}))
		c.boundSoon("satisfied", "v")
		class := create(c, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Provisioner: "example.com/disk"})
		c.quiet()
		class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		if _, err := client.For[*storagev1.StorageClass](c.Client).Update(t.Context(), class); err != nil {
			t.Fatal(err)
		}
		c.until(5*time.Second, "the claim has the default class", func() bool {
			name := c.claim("early").Spec.StorageClassName
			return name != nil && *name == "standard"
		})
		c.until(time.Minute, "its volume is being provisioned", func() bool {
			return c.claim("early").Annotations["volume.kubernetes.io/storage-provisioner"] == "example.com/disk"
		})
		if name := c.claim("satisfied").Spec.StorageClassName; name != nil {
			t.Errorf("the bound claim has class %q", *name)
		}
		if name := c.claim("empty").Spec.StorageClassName; *name != "" {
			t.Errorf("the claim of class \"\" has class %q", *name)
		}
		if name := c.claim("annotated").Spec.StorageClassName; name != nil {
			t.Errorf("the claim with an annotation has class %q", *name)
		}
	})
}

// A volume outlives its claim, and is never given to another claim of the same name.
func TestReleasedVolumesStay(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		create(c, volumeOf("kept", "1Gi", ""))
		create(c, volumeOf("deleted", "1Gi", "d", func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}))
		create(c, claimOf("data", "1Gi", ""))
		create(c, claimOf("scratch", "1Gi", "d"))
		c.boundSoon("data", "kept")
		c.boundSoon("scratch", "deleted")
		remove[*corev1.PersistentVolumeClaim](c, "data", metav1.DeletePropagationBackground)
		remove[*corev1.PersistentVolumeClaim](c, "scratch", metav1.DeletePropagationBackground)
		c.volumeSoon("kept", corev1.VolumeReleased)
		c.volumeSoon("deleted", corev1.VolumeFailed) // nothing can delete it
		create(c, claimOf("data", "1Gi", ""))
		c.quiet()
		if got := c.claim("data").Status.Phase; got != corev1.ClaimPending {
			t.Errorf("another claim of the same name is %s", got)
		}
		remove[*corev1.PersistentVolume](c, "kept", metav1.DeletePropagationBackground)
		c.until(time.Minute, "a released volume can be deleted", func() bool { return !exists[*corev1.PersistentVolume](c, "", "kept") })
	})
}

// A claim whose volume was removed by force recovers when a volume of that name is made.
func TestLostClaimsHaveNoCapacity(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		create(c, volumeOf("v", "1Gi", ""))
		create(c, claimOf("data", "1Gi", ""))
		c.boundSoon("data", "v")
		remove[*corev1.PersistentVolume](c, "v", metav1.DeletePropagationBackground)
		v := c.volume("v")
		v.Finalizers = nil
		if _, err := client.For[*corev1.PersistentVolume](c.Client).Update(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		c.until(time.Minute, "the claim is lost", func() bool { return c.claim("data").Status.Phase == corev1.ClaimLost })
		if s := c.claim("data").Status; len(s.Capacity)+len(s.AccessModes) > 0 {
			t.Errorf("the lost claim has %v, %v", s.Capacity, s.AccessModes)
		}

		create(c, volumeOf("v", "2Gi", ""))
		c.boundSoon("data", "v")
		if got := c.claim("data").Status.Capacity[corev1.ResourceStorage]; got.String() != "2Gi" {
			t.Errorf("the claim has %s of its new volume", got.String())
		}
	})
}

func TestUsedClaimsAndVolumesAreKept(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, volumeOf("v", "1Gi", ""))
		create(c, claimOf("data", "1Gi", ""))
		c.boundSoon("data", "v")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "user"}, Spec: deploymentOf("x", 1, "v1").Spec.Template.Spec}
		pod.Spec.NodeName = "node-0"
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
		create(c, pod)
		remove[*corev1.PersistentVolume](c, "v", metav1.DeletePropagationBackground)
		remove[*corev1.PersistentVolumeClaim](c, "data", metav1.DeletePropagationBackground)
		c.quiet()
		if c.claim("data").DeletionTimestamp == nil || c.volume("v").DeletionTimestamp == nil {
			t.Error("they are not being deleted")
		}
		remove[*corev1.Pod](c, "user", metav1.DeletePropagationBackground)
		c.until(2*time.Minute, "both are gone", func() bool {
			return !exists[*corev1.PersistentVolumeClaim](c, "default", "data") && !exists[*corev1.PersistentVolume](c, "", "v")
		})
	})
}

func TestClaimsAreProvisionedOnDemand(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		wait := storagev1.VolumeBindingWaitForFirstConsumer
		create(c, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "now"}, Provisioner: "disks.example.com"})
		create(c, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Provisioner: "disks.example.com", VolumeBindingMode: &wait})
		create(c, volumeOf("free", "1Gi", "later"))
		create(c, claimOf("a", "1Gi", "now"))
		create(c, claimOf("b", "1Gi", "later"))
		asked := func(name string) bool {
			return c.claim(name).Annotations["volume.kubernetes.io/storage-provisioner"] == "disks.example.com"
		}
		c.until(time.Minute, "the provisioner is asked", func() bool { return asked("a") })
		c.quiet()
		if asked("b") || c.claim("b").Spec.VolumeName != "" {
			t.Error("the claim does not wait for its first pod")
		}
		// A provisioner makes a volume that is reserved for the claim.
		a := c.claim("a")
		create(c, volumeOf("made", "1Gi", "now", func(v *corev1.PersistentVolume) {
			v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "disks.example.com"}
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: "a", UID: a.UID}
		}))
		c.boundSoon("a", "made")
		remove[*corev1.PersistentVolumeClaim](c, "a", metav1.DeletePropagationBackground)
		c.volumeSoon("made", corev1.VolumeReleased) // the provisioner deletes it now
		c.quiet()
	})
}

// Claims and volumes come and go while the controllers crash and lose requests. No volume
// ever has two claims, and in the end each claim that can be bound is.
func TestBindingsSurviveCrashes(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) { bindings(t, seed) })
}

func bindings(t *testing.T, seed uint64) {
	const pairs = 20
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		stop := c.disturb(seed)
		random := rand.New(rand.NewPCG(seed, 2))
		for i := range pairs {
			create(c, volumeOf(fmt.Sprintf("v%d", i), fmt.Sprintf("%dGi", 1+i%4), ""))
			create(c, claimOf(fmt.Sprintf("c%d", i), fmt.Sprintf("%dGi", 1+random.IntN(2)), ""))
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		}
		remove[*corev1.PersistentVolumeClaim](c, "c3", metav1.DeletePropagationBackground)
		time.Sleep(5 * time.Minute)
		stop()
		c.quiet()
		if bad := misbound(c); len(bad) > 0 {
			t.Errorf("seed %d:\n%s", seed, strings.Join(bad, "\n"))
		}
	})
}

// misbound lists what is wrong with the bindings: a claim and its volume must name each
// other, and no claim may wait while a volume that fits is free.
func misbound(c *cluster) (bad []string) {
	volumes := all[*corev1.PersistentVolume](c, "")
	for _, claim := range all[*corev1.PersistentVolumeClaim](c, "") {
		if claim.Status.Phase == corev1.ClaimBound {
			if v := c.volume(claim.Spec.VolumeName); v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID || v.Status.Phase != corev1.VolumeBound {
				bad = append(bad, fmt.Sprintf("claim %s has volume %s, which has %v, %s", claim.Name, v.Name, v.Spec.ClaimRef, v.Status.Phase))
			}
			continue
		}
		want := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if i := slices.IndexFunc(volumes, func(v *corev1.PersistentVolume) bool {
			size := v.Spec.Capacity[corev1.ResourceStorage]
			return v.Spec.ClaimRef == nil && size.Cmp(want) >= 0
		}); i >= 0 {
			bad = append(bad, fmt.Sprintf("claim %s is %s, and volume %s is free", claim.Name, claim.Status.Phase, volumes[i].Name))
		}
	}
	for _, v := range volumes {
		if v.Status.Phase == corev1.VolumeBound && (v.Spec.ClaimRef == nil || !exists[*corev1.PersistentVolumeClaim](c, "default", v.Spec.ClaimRef.Name)) {
			bad = append(bad, fmt.Sprintf("volume %s is bound to a claim that is gone", v.Name))
		}
	}
	return bad
}
