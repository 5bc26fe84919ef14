package controllers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// scratchPod returns a pod with an ephemeral volume "data" of a class.
func scratchPod(name, class string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: deploymentOf("x", 1, "v1").Spec.Template.Spec}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"tier": "scratch"}}, Spec: claimOf("", "1Gi", class).Spec,
		},
	}}}}
	return pod
}

func (c *cluster) ownedBy(claim, pod string) bool {
	p, err := client.For[*corev1.Pod](c.Client).In("default").Get(context.Background(), pod)
	return err == nil && exists[*corev1.PersistentVolumeClaim](c, "default", claim) && metav1.IsControlledBy(c.claim(claim), p)
}

func TestEphemeralVolumesHaveClaimsOfTheirPod(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, volumeOf("v", "1Gi", ""))
		create(c, scratchPod("web", ""))
		c.until(time.Minute, "the claim exists", func() bool { return exists[*corev1.PersistentVolumeClaim](c, "default", "web-data") })
		c.boundSoon("web-data", "v")
		if !c.ownedBy("web-data", "web") || c.claim("web-data").Labels["tier"] != "scratch" {
			t.Errorf("the claim: %v", c.claim("web-data").ObjectMeta)
		}
		remove[*corev1.PersistentVolumeClaim](c, "web-data", metav1.DeletePropagationBackground)
		c.quiet()
		if c.claim("web-data").DeletionTimestamp == nil {
			t.Error("the claim is not being deleted")
		}
		remove[*corev1.Pod](c, "web", metav1.DeletePropagationBackground)
		c.volumeSoon("v", corev1.VolumeReleased)
		create(c, scratchPod("tmp", ""))
		c.until(time.Minute, "the claim exists", func() bool { return c.ownedBy("tmp-data", "tmp") })
		remove[*corev1.Pod](c, "tmp", metav1.DeletePropagationBackground)
		c.until(time.Minute, "the claim is gone with the pod", func() bool { return !exists[*corev1.PersistentVolumeClaim](c, "default", "tmp-data") })
	})
}

func TestPodsWithEphemeralVolumesGoInTheForeground(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, volumeOf("v", "1Gi", ""))
		create(c, scratchPod("web", ""))
		c.until(time.Minute, "the claim exists", func() bool { return exists[*corev1.PersistentVolumeClaim](c, "default", "web-data") })
		c.boundSoon("web-data", "v")
		c.until(time.Minute, "the pod runs", func() bool { return c.pods("")[0].Status.Phase == corev1.PodRunning })
		remove[*corev1.Pod](c, "web", metav1.DeletePropagationForeground)
		c.until(time.Minute, "the pod and its claim are gone", func() bool {
			return !exists[*corev1.Pod](c, "default", "web") && !exists[*corev1.PersistentVolumeClaim](c, "default", "web-data")
		})
	})
}

func TestClaimsOfOthersAreNotAdopted(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, claimOf("web-data", "1Gi", ""))
		create(c, scratchPod("web", ""))
		const want = "ephemeral volume data: PVC default/web-data was not created for pod default/web (pod is not owner)"
		c.until(time.Minute, "the conflict is reported", func() bool {
			for _, e := range all[*corev1.Event](c, "") {
				if e.Type == corev1.EventTypeWarning && e.Reason == "FailedBinding" && e.InvolvedObject.Name == "web" && e.Message == want {
					return true
				}
			}
			return false
		})
		if len(c.claim("web-data").OwnerReferences) > 0 {
			t.Error("the claim was adopted")
		}
		remove[*corev1.PersistentVolumeClaim](c, "web-data", metav1.DeletePropagationBackground)
		remove[*corev1.Pod](c, "web", metav1.DeletePropagationBackground)
		create(c, scratchPod("late", ""))
		c.until(10*time.Minute, "a later pod gets its own", func() bool { return c.ownedBy("late-data", "late") })
	})
}

// Pods with ephemeral volumes come and go, partly under the same names, while the
// controllers crash. In the end exactly the pods that exist have claims, each of its own.
func TestEphemeralClaimsSurviveCrashes(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		inCluster(t, 2, func(t *testing.T, c *cluster) { ephemeralStory(t, c, seed) })
	})
}

func ephemeralStory(t *testing.T, c *cluster, seed uint64) {
	c.until(time.Minute, "pods can be created", func() bool { return exists[*corev1.ServiceAccount](c, "default", "default") })
	stop := c.disturb(seed)
	random := rand.New(rand.NewPCG(seed, 2))
	name := func() string { return fmt.Sprintf("p%d", random.IntN(10)) }
	for range 40 {
		if n := name(); exists[*corev1.Pod](c, "default", n) {
			remove[*corev1.Pod](c, n, metav1.DeletePropagationBackground)
		} else {
			create(c, scratchPod(n, "none"))
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
	time.Sleep(5 * time.Minute)
	stop()
	time.Sleep(20 * time.Minute) // a pod whose name was taken waits with back-off
	var want, got []string
	for _, p := range c.pods("") {
		want = append(want, p.Name+"-data of "+string(p.UID))
	}
	for _, claim := range all[*corev1.PersistentVolumeClaim](c, "") {
		ref := metav1.GetControllerOf(claim)
		got = append(got, claim.Name+" of "+string(ref.UID))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("seed %d: claims\n%s\nwant\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
