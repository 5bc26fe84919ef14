package controllers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/scheme"
	"podium/pkg/volumebinding"
)

// withLocalPath creates the class local-path and lets the nodes serve it.
func (c *cluster) withLocalPath() {
	create(c, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local-path"}, Provisioner: volumebinding.LocalPath,
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer), AllowVolumeExpansion: new(true),
	})
	for _, n := range all[*corev1.Node](c, "") {
		mergePatch[*corev1.Node](c, n.Name, map[string]any{"metadata": map[string]any{"annotations": map[string]string{volumebinding.LocalPath: "/local-path"}}})
	}
}

func mergePatch[T scheme.Object](c *cluster, name string, patch map[string]any) {
	c.t.Helper()
	r := client.For[T](c.Client)
	if scheme.KindOf[T](c.scheme).Namespaced {
		r = r.In("default")
	}
	data, err := json.Marshal(patch)
	if err == nil {
		_, err = r.Patch(context.Background(), name, types.MergePatchType, data)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// selectNode does what the scheduler does when the first pod of a claim gets a node.
func (c *cluster) selectNode(claim, node string) {
	c.t.Helper()
	mergePatch[*corev1.PersistentVolumeClaim](c, claim, map[string]any{"metadata": map[string]any{"annotations": map[string]string{volumebinding.SelectedNode: node}}})
}

// hold and release do what the kubelet does when it makes and has removed a directory.
func (c *cluster) hold(volume string) {
	c.t.Helper()
	mergePatch[*corev1.PersistentVolume](c, volume, map[string]any{"metadata": map[string]any{"finalizers": append(c.volume(volume).Finalizers, volumebinding.LocalPath)}})
}

func (c *cluster) release(volume string) {
	c.t.Helper()
	left := slices.DeleteFunc(c.volume(volume).Finalizers, func(f string) bool { return f == volumebinding.LocalPath })
	mergePatch[*corev1.PersistentVolume](c, volume, map[string]any{"metadata": map[string]any{"finalizers": left}})
}

func (c *cluster) reports(reason, message string) bool {
	return slices.ContainsFunc(c.events(), func(e *corev1.Event) bool { return e.Reason == reason && strings.Contains(e.Message, message) })
}

func TestLocalPathVolumesFollowTheirClaims(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.withLocalPath()
		create(c, claimOf("data", "1Gi", "local-path"))
		c.quiet()
		if n := len(all[*corev1.PersistentVolume](c, "")); n != 0 {
			t.Fatalf("%d volumes before a node is selected", n)
		}
		c.selectNode("data", "gone")
		c.until(time.Minute, "the scheduler is to select another node", func() bool {
			_, selected := c.claim("data").Annotations[volumebinding.SelectedNode]
			return !selected && c.reports("ProvisioningFailed", `node "gone" does not exist`)
		})
		c.selectNode("data", "node-1")
		name := "pvc-" + string(c.claim("data").UID)
		c.until(time.Minute, "the volume exists", func() bool { return exists[*corev1.PersistentVolume](c, "", name) })
		c.boundSoon("data", name)
		if v := c.volume(name); volumebinding.Home(v) != "node-1" || v.Spec.Local.Path != "/local-path/"+name {
			t.Errorf("the volume: %+v", v.Spec)
		}
		c.hold(name)
		remove[*corev1.PersistentVolumeClaim](c, "data", metav1.DeletePropagationBackground)
		c.until(time.Minute, "the volume is being deleted", func() bool { return c.volume(name).DeletionTimestamp != nil })
		c.quiet()
		remove[*corev1.Node](c, "node-1", metav1.DeletePropagationBackground)
		c.until(5*time.Minute, "the lost directory is reported", func() bool { return c.reports("VolumeFailedDelete", `node "node-1", which does not exist`) })
		c.release(name)
		c.until(time.Minute, "the volume is gone", func() bool { return !exists[*corev1.PersistentVolume](c, "", name) })
	})
}

func TestUnusedAndRetainedLocalPathVolumes(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		c.withLocalPath()
		for _, claim := range []string{"unused", "kept"} {
			create(c, claimOf(claim, "1Gi", "local-path"))
			c.selectNode(claim, "node-0")
		}
		unused, kept := "pvc-"+string(c.claim("unused").UID), "pvc-"+string(c.claim("kept").UID)
		for claim, v := range map[string]string{"unused": unused, "kept": kept} {
			c.until(time.Minute, "the volume exists", func() bool { return exists[*corev1.PersistentVolume](c, "", v) })
			c.boundSoon(claim, v)
		}
		mergePatch[*corev1.PersistentVolume](c, kept, map[string]any{"spec": map[string]any{"persistentVolumeReclaimPolicy": "Retain"}})
		for _, claim := range []string{"unused", "kept"} {
			remove[*corev1.PersistentVolumeClaim](c, claim, metav1.DeletePropagationBackground)
		}
		c.until(time.Minute, "a volume that no kubelet has seen is gone", func() bool { return !exists[*corev1.PersistentVolume](c, "", unused) })
		c.quiet()
		if v := c.volume(kept); v.Status.Phase != corev1.VolumeReleased || v.DeletionTimestamp != nil {
			t.Errorf("the retained volume is %s", v.Status.Phase)
		}
	})
}

// Claims come and go while the controllers crash. In the end each claim has the volume
// that is named after it, and no other volume exists.
func TestLocalPathProvisioningSurvivesCrashes(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		inCluster(t, 2, func(t *testing.T, c *cluster) { localPathStory(t, c, seed) })
	})
}

func localPathStory(t *testing.T, c *cluster, seed uint64) {
	c.withLocalPath()
	stop := c.disturb(seed)
	random := rand.New(rand.NewPCG(seed, 2))
	for i := range 40 {
		name := fmt.Sprintf("c%d", random.IntN(12))
		if exists[*corev1.PersistentVolumeClaim](c, "default", name) {
			err := client.For[*corev1.PersistentVolumeClaim](c.Client).In("default").Delete(t.Context(), name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) { // it may have been deleted before
				t.Fatal(err)
			}
		} else {
			create(c, claimOf(name, "1Gi", "local-path"))
			c.selectNode(name, fmt.Sprintf("node-%d", i%2))
		}
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
	}
	time.Sleep(5 * time.Minute)
	stop()
	c.quiet()
	var want, got []string
	for _, claim := range all[*corev1.PersistentVolumeClaim](c, "") {
		want = append(want, fmt.Sprintf("pvc-%s Bound to %s", claim.UID, claim.Name))
		if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName != "pvc-"+string(claim.UID) {
			t.Errorf("claim %s is %s, to %s", claim.Name, claim.Status.Phase, claim.Spec.VolumeName)
		}
	}
	for _, v := range all[*corev1.PersistentVolume](c, "") {
		got = append(got, fmt.Sprintf("%s %s to %s", v.Name, v.Status.Phase, v.Spec.ClaimRef.Name))
	}
	slices.Sort(want)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("seed %d: volumes\n%s\nwant\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Claims grow while the controllers crash. In the end claim and volume have what was
// requested, and nothing of the expansion is left in the status.
func TestExpansionsSurviveCrashes(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		inCluster(t, 1, func(t *testing.T, c *cluster) { expansionStory(t, c, seed) })
	})
}

func expansionStory(t *testing.T, c *cluster, seed uint64) {
	c.withLocalPath()
	stop := c.disturb(seed)
	random := rand.New(rand.NewPCG(seed, 2))
	for i := range 10 {
		name := fmt.Sprintf("c%d", i)
		create(c, claimOf(name, "1Gi", "local-path"))
		c.selectNode(name, "node-0")
	}
	c.until(10*time.Minute, "all claims are bound", func() bool {
		return !slices.ContainsFunc(all[*corev1.PersistentVolumeClaim](c, ""), func(p *corev1.PersistentVolumeClaim) bool { return p.Status.Phase != corev1.ClaimBound })
	})
	for size := 2; size <= 4; size++ {
		for i := range 10 {
			mergePatch[*corev1.PersistentVolumeClaim](c, fmt.Sprintf("c%d", i), map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": fmt.Sprintf("%dGi", size)}}}})
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		}
	}
	time.Sleep(5 * time.Minute)
	stop()
	c.quiet()
	for _, claim := range all[*corev1.PersistentVolumeClaim](c, "") {
		has, volume := claim.Status.Capacity[corev1.ResourceStorage], c.volume(claim.Spec.VolumeName).Spec.Capacity[corev1.ResourceStorage]
		if has.String() != "4Gi" || volume.String() != "4Gi" || len(claim.Status.Conditions)+len(claim.Status.AllocatedResourceStatuses) > 0 {
			t.Errorf("seed %d: claim %s has %s, its volume %s: %+v", seed, claim.Name, has.String(), volume.String(), claim.Status)
		}
	}
	if !c.reports("VolumeResizeSuccessful", "Resize volume succeeded") {
		t.Error("no expansion was reported")
	}
}
