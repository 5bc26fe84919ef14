package intree_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/intree"
)

func TestSource(t *testing.T) {
	own := &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
	name := "iqn.2001-04.com.example:me"
	for row, c := range map[string]struct {
		source corev1.PersistentVolumeSource
		want   *corev1.CSIPersistentVolumeSource
	}{
		"CSI":      {corev1.PersistentVolumeSource{CSI: own}, own},
		"HostPath": {corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}, nil},
		"NFS": {corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/p", ReadOnly: true}}, &corev1.CSIPersistentVolumeSource{
			Driver: intree.NFS, VolumeHandle: "s:/p", ReadOnly: true, VolumeAttributes: map[string]string{"server": "s", "share": "/p", "readOnly": "true"},
		}},
		"ISCSI": {corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.x", Lun: 7}}, &corev1.CSIPersistentVolumeSource{
			Driver: intree.ISCSI, VolumeHandle: "10.0.0.1:3260:iqn.x:7", FSType: "ext4",
			VolumeAttributes: map[string]string{"portals": "10.0.0.1:3260", "iqn": "iqn.x", "lun": "7", "iscsiInterface": "default"},
		}},
		"ISCSIWithAll": {corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{
			TargetPortal: "fd00::1", IQN: "iqn.x", ISCSIInterface: "eth", FSType: "xfs", ReadOnly: true, Portals: []string{"[fd00::1]:3260", "[fd00::2]"},
			DiscoveryCHAPAuth: true, SessionCHAPAuth: true, SecretRef: &corev1.SecretReference{Name: "chap"}, InitiatorName: &name,
		}}, &corev1.CSIPersistentVolumeSource{
			Driver: intree.ISCSI, VolumeHandle: "[fd00::1]:3260:iqn.x:0:apps/chap", FSType: "xfs", ReadOnly: true,
			NodeStageSecretRef: &corev1.SecretReference{Namespace: "apps", Name: "chap"},
			VolumeAttributes: map[string]string{"portals": "[fd00::1]:3260,[fd00::2]:3260", "iqn": "iqn.x", "lun": "0", "iscsiInterface": "fd00::1:pv",
				"initiatorName": name, "readOnly": "true", "chapAuthDiscovery": "true", "chapAuthSession": "true"},
		}},
	} {
		t.Run(row, func(t *testing.T) {
			pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: c.source, ClaimRef: &corev1.ObjectReference{Namespace: "apps"}}}
			pv.Name = "pv"
			if diff := cmp.Diff(c.want, intree.Source(pv)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestInline checks that a volume of a pod and a persistent volume with the same target are
// one volume of the driver, and that one with another Secret is another, of the same disk.
func TestInline(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Namespace = "apps"
	inline := func(secret string) *corev1.CSIPersistentVolumeSource {
		s := &corev1.ISCSIVolumeSource{TargetPortal: "10.0.0.1:3260", IQN: "iqn.x", Lun: 7}
		if secret != "" {
			s.SecretRef = &corev1.LocalObjectReference{Name: secret}
		}
		return intree.Inline(pod, &corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{ISCSI: s}})
	}
	pv := &corev1.PersistentVolume{}
	pv.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.x", Lun: 7}
	if diff := cmp.Diff(intree.Source(pv), inline("")); diff != "" {
		t.Error(diff)
	}
	if got, want := inline("b").NodeStageSecretRef, (&corev1.SecretReference{Namespace: "apps", Name: "b"}); !cmp.Equal(got, want) {
		t.Errorf("Secret %v, want %v", got, want)
	}
	if inline("a").VolumeHandle == inline("b").VolumeHandle || inline("a").VolumeHandle == inline("").VolumeHandle {
		t.Error("volumes with other Secrets have the same handle")
	}
	for _, secret := range []string{"a", "b", ""} {
		if got, want := intree.Disk(intree.ISCSI, inline(secret).VolumeHandle), "10.0.0.1:3260:iqn.x:7"; got != want {
			t.Errorf("with Secret %q: disk %s, want %s", secret, got, want)
		}
	}
	if got := intree.Disk("d", "a:b/c"); got != "a:b/c" {
		t.Errorf("disk %s of another driver", got)
	}
	if s := intree.Inline(pod, &corev1.Volume{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: intree.NFS}}}); s != nil {
		t.Errorf("an inline CSI volume is %v, want none", s)
	}
}
