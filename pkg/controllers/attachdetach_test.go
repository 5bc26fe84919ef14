package controllers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/attachment"
	"podium/pkg/client"
)

const disks = "disks.example.com"

// attacher marks attachments as attached every second, as an external-attacher does, and
// checks that no volume is attached to two nodes.
func (c *cluster) attacher() {
	attachments := client.For[*storagev1.VolumeAttachment](c.Client)
	c.background(func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Second):
			}
			list, err := attachments.List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			nodes := map[string]string{}
			for _, a := range list.Items {
				pv := *a.Spec.Source.PersistentVolumeName
				if other, ok := nodes[pv]; ok {
					c.t.Errorf("volume %s is attached to %s and %s", pv, other, a.Spec.NodeName)
				}
				if nodes[pv] = a.Spec.NodeName; a.Status.Attached {
					continue
				}
				a.Status.Attached = true
				_, _ = attachments.UpdateStatus(ctx, a) // repeated
			}
		}
	})
}

// disk creates a CSI volume that is bound to a claim.
func (c *cluster) disk(name string) {
	create(c, volumeOf(name, "1Gi", "", func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: disks, VolumeHandle: "handle-" + name}}
	}))
	create(c, claimOf(name, "1Gi", ""))
	c.boundSoon(name, name)
}

// user creates a pod on a node that uses a claim.
func (c *cluster) user(name, node, claim string) {
	create(c, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
		},
	})
}

func (c *cluster) attachedTo(node, volume string) bool {
	unique := attachment.Volume(disks, "handle-"+volume)
	a, err := client.For[*storagev1.VolumeAttachment](c.Client).Get(context.Background(), attachment.Name(disks, "handle-"+volume, node))
	return err == nil && a.Status.Attached && attachment.Attached(c.node(node), unique)
}

// A volume follows its pod to another node, however often the controllers crash, and is
// never attached to two nodes.
func TestVolumesFollowTheirPods(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.attacher()
		c.disk("data")
		for round := range 3 {
			node, pod := fmt.Sprintf("node-%d", round%2), fmt.Sprintf("p%d", round)
			c.user(pod, node, "data")
			c.restartControllers()
			c.until(2*time.Minute, "the volume is attached to "+node, func() bool { return c.attachedTo(node, "data") })
			other := fmt.Sprintf("node-%d", (round+1)%2)
			if c.attachedTo(other, "data") {
				t.Errorf("the volume is attached to %s too", other)
			}
			c.restartControllers()
			remove[*corev1.Pod](c, pod, metav1.DeletePropagationBackground)
			c.until(5*time.Minute, "the volume is detached", func() bool {
				return len(all[*storagev1.VolumeAttachment](c, "")) == 0 && len(c.node(node).Status.VolumesAttached) == 0
			})
		}
	})
}

// toldOf waits for an event that says why a pod waits for its volume.
func (c *cluster) toldOf(pod, message string) {
	c.t.Helper()
	c.until(time.Minute, "an event says why pod "+pod+" waits", func() bool {
		for _, e := range all[*corev1.Event](c, "") {
			if e.InvolvedObject.Name == pod && e.Reason == "FailedAttachVolume" && e.Message == message {
				return true
			}
		}
		return false
	})
}

// The success of an attachment is told once, also if the controllers restart.
func TestAttachmentsAreToldOnce(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		c.attacher()
		c.disk("data")
		c.user("p", "node-0", "data")
		c.until(time.Minute, "the volume is attached", func() bool { return c.attachedTo("node-0", "data") })
		time.Sleep(time.Minute)
		c.restartControllers()
		time.Sleep(time.Minute)
		told := 0
		for _, e := range c.events() {
			if e.Reason == "SuccessfulAttachVolume" {
				told += int(e.Count)
			}
		}
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	})
}

// The second pod waits, and an event says for what.
func TestAVolumeIsAttachedToOneNode(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.attacher()
		c.disk("data")
		c.user("first", "node-0", "data")
		c.until(time.Minute, "the volume is attached", func() bool { return c.attachedTo("node-0", "data") })
		c.user("second", "node-1", "data")
		c.toldOf("second", `Multi-Attach error for volume "data" Volume is already used by pod(s) first`)
		if c.attachedTo("node-1", "data") {
			t.Error("the volume is attached to both nodes")
		}
		remove[*corev1.Pod](c, "first", metav1.DeletePropagationBackground)
		c.until(5*time.Minute, "the volume moves", func() bool { return c.attachedTo("node-1", "data") && !c.attachedTo("node-0", "data") })
	})
}

// TestDiskOfTwoVolumesIsAttachedToOneNode offers a disk by two persistent volumes. It moves
// when the first node has released it, also after the persistent volume is gone.
func TestDiskOfTwoVolumesIsAttachedToOneNode(t *testing.T) {
	target := func(secret string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2001-04.com.example:a", Lun: 1,
			SessionCHAPAuth: true, SecretRef: &corev1.SecretReference{Namespace: "default", Name: secret}}}
	}
	plugged := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: disks, VolumeHandle: "handle"}}
	for name, sources := range map[string][2]corev1.PersistentVolumeSource{
		"CSI":             {plugged, plugged},
		"ISCSIWithSecret": {target("a"), target("b")}, // the Secret is a part of the handle
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, func(t *testing.T, c *cluster) {
				c.attacher()
				for i, pv := range []string{"one", "two"} {
					create(c, volumeOf(pv, "1Gi", "", func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeSource = sources[i] }))
					create(c, claimOf(pv, "1Gi", ""))
					c.boundSoon(pv, pv)
				}
				attached := func(node string) bool { return len(c.node(node).Status.VolumesAttached) == 1 }
				c.user("first", "node-0", "one")
				c.until(time.Minute, "the volume is attached", func() bool { return attached("node-0") })
				c.usedBy("node-0", c.node("node-0").Status.VolumesAttached[0].Name)
				c.user("second", "node-1", "two")
				c.toldOf("second", `Multi-Attach error for volume "two" Volume is already used by pod(s) first`)

				remove[*corev1.Pod](c, "first", metav1.DeletePropagationBackground)
				remove[*corev1.PersistentVolumeClaim](c, "one", metav1.DeletePropagationBackground)
				remove[*corev1.PersistentVolume](c, "one", metav1.DeletePropagationBackground)
				c.until(time.Minute, "the persistent volume is gone", func() bool { return len(all[*corev1.PersistentVolume](c, "")) == 1 })
				time.Sleep(time.Minute)
				if attached("node-1") || !attached("node-0") {
					t.Error("the disk moved while the first node uses it")
				}
				c.usedBy("node-0")
				c.until(time.Minute, "the disk moves", func() bool { return attached("node-1") && !attached("node-0") })
			})
		})
	}
}

// usedBy writes, as a kubelet does, which attached volumes a node uses.
func (c *cluster) usedBy(node string, volumes ...corev1.UniqueVolumeName) {
	c.t.Helper()
	n := c.node(node)
	n.Status.VolumesInUse = volumes
	if _, err := client.For[*corev1.Node](c.Client).UpdateStatus(context.Background(), n); err != nil {
		c.t.Fatal(err)
	}
}
