package podsecurity

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func escalation(s subject) *Violation {
	who := s.with(func(c *corev1.Container) bool {
		allow := security(c).AllowPrivilegeEscalation
		return allow == nil || *allow
	})
	if len(who) == 0 {
		return nil
	}
	return violation("allowPrivilegeEscalation != false", "%s must set securityContext.allowPrivilegeEscalation=false", named("container", who))
}

func keptCapabilities(s subject) *Violation {
	kept := s.with(func(c *corev1.Container) bool {
		caps := security(c).Capabilities
		return caps == nil || !slices.Contains(caps.Drop, "ALL")
	})
	adding, added := s.adding([]string{"NET_BIND_SERVICE"})
	var out []string
	if len(kept) > 0 {
		out = append(out, named("container", kept)+` must set securityContext.capabilities.drop=["ALL"]`)
	}
	if len(adding) > 0 {
		out = append(out, named("container", adding)+" must not include "+quote(added)+" in securityContext.capabilities.add")
	}
	if len(out) == 0 {
		return nil
	}
	return &Violation{"unrestricted capabilities", strings.Join(out, "; ")}
}

func volumeTypes(s subject) *Violation {
	var names []string
	var bad values
	for i := range s.spec.Volumes {
		v := &s.spec.Volumes[i]
		if harmless(&v.VolumeSource) {
			continue
		}
		names = append(names, v.Name)
		bad.add(volumeType(&v.VolumeSource))
	}
	if len(names) == 0 {
		return nil
	}
	return violation("restricted volume types", "%s %s %s %s", named("volume", names), use(len(names)), plural("restricted volume type", len(bad)), quote(bad))
}

// harmless: neither the host's files nor a protocol that the node would speak
// in the pod's name.
func harmless(v *corev1.VolumeSource) bool {
	return v.ConfigMap != nil || v.CSI != nil || v.DownwardAPI != nil || v.EmptyDir != nil || v.Ephemeral != nil ||
		v.Image != nil || v.PersistentVolumeClaim != nil || v.Projected != nil || v.Secret != nil
}

func volumeType(v *corev1.VolumeSource) string {
	for _, t := range []struct {
		set  bool
		name string
	}{
		{v.HostPath != nil, "hostPath"},
		{v.GCEPersistentDisk != nil, "gcePersistentDisk"},
		{v.AWSElasticBlockStore != nil, "awsElasticBlockStore"},
		{v.GitRepo != nil, "gitRepo"},
		{v.NFS != nil, "nfs"},
		{v.ISCSI != nil, "iscsi"},
		{v.Glusterfs != nil, "glusterfs"},
		{v.RBD != nil, "rbd"},
		{v.FlexVolume != nil, "flexVolume"},
		{v.Cinder != nil, "cinder"},
		{v.CephFS != nil, "cephfs"},
		{v.Flocker != nil, "flocker"},
		{v.FC != nil, "fc"},
		{v.AzureFile != nil, "azureFile"},
		{v.VsphereVolume != nil, "vsphereVolume"},
		{v.Quobyte != nil, "quobyte"},
		{v.AzureDisk != nil, "azureDisk"},
		{v.PhotonPersistentDisk != nil, "photonPersistentDisk"},
		{v.PortworxVolume != nil, "portworxVolume"},
		{v.ScaleIO != nil, "scaleIO"},
		{v.StorageOS != nil, "storageos"},
	} {
		if t.set {
			return t.name
		}
	}
	return "unknown"
}

func runAsNonRoot(s subject) *Violation {
	const reason = "runAsNonRoot != true"
	says := s.pod().RunAsNonRoot
	who := culprits{
		pod: says != nil && !*says,
		containers: s.with(func(c *corev1.Container) bool {
			own := security(c).RunAsNonRoot
			return own != nil && !*own
		}),
	}
	if who.any() {
		return violation(reason, "%s must not set securityContext.runAsNonRoot=false", who)
	}
	silent := s.with(func(c *corev1.Container) bool { return security(c).RunAsNonRoot == nil && !isTrue(says) })
	if len(silent) == 0 {
		return nil
	}
	return violation(reason, "pod or %s must set securityContext.runAsNonRoot=true", named("container", silent))
}

func runAsRoot(s subject) *Violation {
	root := func(id *int64) bool { return id != nil && *id == 0 }
	who := culprits{
		pod:        root(s.pod().RunAsUser),
		containers: s.with(func(c *corev1.Container) bool { return root(security(c).RunAsUser) }),
	}
	if !who.any() {
		return nil
	}
	return violation("runAsUser=0", "%s must not set runAsUser=0", who)
}

func seccompMissing(s subject) *Violation {
	if v := seccompUnconfined(s); v != nil {
		return v
	}
	set := s.pod().SeccompProfile != nil // and confined, or it had been found before
	silent := s.with(func(c *corev1.Container) bool { return security(c).SeccompProfile == nil && !set })
	if len(silent) == 0 {
		return nil
	}
	return violation("seccompProfile", `pod or %s must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"`, named("container", silent))
}
