// Package intree translates nfs and iscsi volumes, whose drivers are a part of the
// kubelet, into volumes of CSI drivers. From there on they are staged, published, attached
// and counted as those of other CSI drivers.
package intree

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// The names of the drivers.
const (
	NFS   = "nfs.podium.dev"
	ISCSI = "iscsi.podium.dev"
)

// The attributes of translated volumes. Booleans are "true" or absent.
const (
	ReadOnly = "readOnly"

	Server = "server" // of NFS
	Share  = "share"  // a path on the server

	Portals      = "portals" // of iSCSI: IP or IP:port, separated by commas; the first is the target portal
	IQN          = "iqn"
	LUN          = "lun"
	Interface    = "iscsiInterface"
	Initiator    = "initiatorName"
	DiscoverCHAP = "chapAuthDiscovery"
	SessionCHAP  = "chapAuthSession"
)

// Driver returns the CSIDriver of one of the drivers, nil for other drivers. The drivers
// have persistent volumes only: an inline csi volume that names one would be an nfs or
// iscsi volume that Pod Security does not recognize.
func Driver(name string) *storagev1.CSIDriver {
	policy, attach := storagev1.NoneFSGroupPolicy, false
	switch name {
	case NFS:
	case ISCSI:
		policy, attach = storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, true
	default:
		return nil
	}
	return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		AttachRequired: &attach, FSGroupPolicy: &policy, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
	}}
}

// Source returns the CSI source of a persistent volume: its own or a translated one; nil
// if it has neither.
func Source(pv *corev1.PersistentVolume) *corev1.CSIPersistentVolumeSource {
	switch s := &pv.Spec.PersistentVolumeSource; {
	case s.CSI != nil:
		return s.CSI
	case s.NFS != nil:
		return nfs(s.NFS)
	case s.ISCSI != nil:
		out := iscsi((*target)(s.ISCSI), pv.Name)
		if ref := s.ISCSI.SecretRef; ref != nil {
			namespace := ref.Namespace
			if claim := pv.Spec.ClaimRef; namespace == "" && claim != nil {
				namespace = claim.Namespace
			}
			authenticate(out, namespace, ref.Name)
		}
		return out
	}
	return nil
}

// Inline returns the translated source of a volume of a pod; nil for other sources.
func Inline(pod *corev1.Pod, v *corev1.Volume) *corev1.CSIPersistentVolumeSource {
	switch s := v.ISCSI; {
	case v.NFS != nil:
		return nfs(v.NFS)
	case s != nil:
		out := iscsi(&target{
			TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, ISCSIInterface: s.ISCSIInterface, FSType: s.FSType, ReadOnly: s.ReadOnly,
			Portals: s.Portals, DiscoveryCHAPAuth: s.DiscoveryCHAPAuth, SessionCHAPAuth: s.SessionCHAPAuth, InitiatorName: s.InitiatorName,
		}, v.Name)
		if s.SecretRef != nil {
			authenticate(out, pod.Namespace, s.SecretRef.Name)
		}
		return out
	}
	return nil
}

func nfs(s *corev1.NFSVolumeSource) *corev1.CSIPersistentVolumeSource {
	out := &corev1.CSIPersistentVolumeSource{
		Driver: NFS, VolumeHandle: s.Server + ":" + s.Path, ReadOnly: s.ReadOnly,
		VolumeAttributes: map[string]string{Server: s.Server, Share: s.Path},
	}
	mark(out, ReadOnly, s.ReadOnly)
	return out
}

// target is an iSCSI volume without its Secret.
type target corev1.ISCSIPersistentVolumeSource

// iscsi translates a target. An initiator with a name of its own needs an interface of its
// own, which has upstream's name.
func iscsi(s *target, volume string) *corev1.CSIPersistentVolumeSource {
	lun := strconv.Itoa(int(s.Lun))
	portals := []string{withPort(s.TargetPortal)}
	for _, p := range s.Portals {
		if p = withPort(p); !slices.Contains(portals, p) {
			portals = append(portals, p)
		}
	}
	out := &corev1.CSIPersistentVolumeSource{
		Driver: ISCSI, VolumeHandle: portals[0] + ":" + s.IQN + ":" + lun, FSType: s.FSType, ReadOnly: s.ReadOnly,
		VolumeAttributes: map[string]string{Portals: strings.Join(portals, ","), IQN: s.IQN, LUN: lun, Interface: s.ISCSIInterface},
	}
	if out.FSType == "" {
		out.FSType = "ext4"
	}
	if s.ISCSIInterface == "" {
		out.VolumeAttributes[Interface] = "default"
	}
	if s.InitiatorName != nil {
		out.VolumeAttributes[Initiator] = *s.InitiatorName
		out.VolumeAttributes[Interface] = fmt.Sprintf("%s:%s", s.TargetPortal, volume)
	}
	mark(out, ReadOnly, s.ReadOnly)
	mark(out, DiscoverCHAP, s.DiscoveryCHAPAuth)
	mark(out, SessionCHAP, s.SessionCHAPAuth)
	return out
}

// authenticate adds the Secret of a target. It is a part of the volume's handle, so that
// what is staged with one Secret is not used with another.
func authenticate(s *corev1.CSIPersistentVolumeSource, namespace, name string) {
	s.NodeStageSecretRef = &corev1.SecretReference{Namespace: namespace, Name: name}
	s.VolumeHandle += ":" + namespace + "/" + name
}

// Disk returns the part of a volume's handle that names its disk. A target's LUN is one
// disk with whichever Secret it is used.
func Disk(driver, handle string) string {
	if i := strings.LastIndexByte(handle, ':'); driver == ISCSI && i >= 0 && strings.Contains(handle[i:], "/") {
		return handle[:i] // authenticate has added the rest
	}
	return handle
}

// withPort adds the port of iSCSI to an address that has none. An IPv6 address with a port
// is in brackets.
func withPort(portal string) string {
	if _, _, err := net.SplitHostPort(portal); err == nil {
		return portal
	}
	return net.JoinHostPort(strings.Trim(portal, "[]"), "3260")
}

func mark(s *corev1.CSIPersistentVolumeSource, key string, on bool) {
	if on {
		s.VolumeAttributes[key] = "true"
	}
}
