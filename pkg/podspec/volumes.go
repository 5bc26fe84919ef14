package podspec

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

const (
	fileModeError = "must be a number between 0 and 0777 (octal), both inclusive"

	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

// validateVolumes validates volumes and returns them by name, for the validation of
// mounts.
func validateVolumes(volumes []corev1.Volume, at *field.Path) (map[string]*corev1.Volume, field.ErrorList) {
	var errs field.ErrorList
	byName, names := map[string]*corev1.Volume{}, unique{}
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		bad := validateSource(&v.VolumeSource, at)
		if v.Name == "" {
			bad = append(bad, field.Required(at.Child("name"), ""))
		} else {
			bad = append(bad, fieldcheck.Invalid(validation.IsDNS1123Label(v.Name), at.Child("name"), v.Name)...)
			bad = append(bad, names.check(v.Name, at.Child("name"))...)
		}
		byName[v.Name] = v
		errs = append(errs, bad...)
	}
	return byName, errs
}

// validateSource validates the source of a volume and rejects unsupported ones.
func validateSource(s *corev1.VolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := 0
	source := func(name string, check func(at *field.Path) field.ErrorList) {
		at := at.Child(name)
		if sources++; sources > 1 {
			errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type"))
			return
		}
		errs = append(errs, check(at)...)
	}
	if s.EmptyDir != nil {
		source("emptyDir", func(at *field.Path) field.ErrorList { return validateEmptyDir(s.EmptyDir, at) })
	}
	if s.HostPath != nil {
		source("hostPath", func(at *field.Path) field.ErrorList { return ValidateHostPath(s.HostPath, at) })
	}
	if s.Secret != nil {
		source("secret", func(at *field.Path) field.ErrorList {
			return validateFiles(s.Secret.SecretName, "secretName", s.Secret.Items, s.Secret.DefaultMode, at)
		})
	}
	if s.ConfigMap != nil {
		source("configMap", func(at *field.Path) field.ErrorList {
			return validateFiles(s.ConfigMap.Name, "name", s.ConfigMap.Items, s.ConfigMap.DefaultMode, at)
		})
	}
	if s.DownwardAPI != nil {
		source("downwardAPI", func(at *field.Path) field.ErrorList {
			return append(validateMode(s.DownwardAPI.DefaultMode, at.Child("defaultMode")),
				validateDownward(s.DownwardAPI.Items, at)...)
		})
	}
	if s.Projected != nil {
		source("projected", func(at *field.Path) field.ErrorList { return validateProjected(s.Projected, at) })
	}
	if s.CSI != nil {
		source("csi", func(at *field.Path) field.ErrorList { return validateCSI(s.CSI, at) })
	}
	if s.PersistentVolumeClaim != nil {
		source("persistentVolumeClaim", func(at *field.Path) field.ErrorList {
			if s.PersistentVolumeClaim.ClaimName == "" {
				return field.ErrorList{field.Required(at.Child("claimName"), "")}
			}
			return nil
		})
	}
	if s.Ephemeral != nil {
		source("ephemeral", func(at *field.Path) field.ErrorList { return validateEphemeral(s.Ephemeral, at) })
	}
	if s.Image != nil {
		source("image", func(at *field.Path) field.ErrorList {
			return validatePullPolicy(s.Image.PullPolicy, at.Child("pullPolicy"))
		})
	}
	if s.NFS != nil {
		source("nfs", func(at *field.Path) field.ErrorList { return ValidateNFS(s.NFS, at) })
	}
	if s.ISCSI != nil {
		source("iscsi", func(at *field.Path) field.ErrorList { return validateISCSI(s.ISCSI, at) })
	}
	for _, name := range otherSources(s) {
		source(name, func(at *field.Path) field.ErrorList { return field.ErrorList{refused(at)} })
	}
	if sources == 0 {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	return errs
}

// RequireImages returns an error for each image volume without an image. Templates may
// have such volumes, pods may not.
func RequireImages(volumes []corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range volumes {
		if source := volumes[i].Image; source != nil && source.Reference == "" {
			errs = append(errs, field.Required(at.Index(i).Child("image", "reference"), ""))
		}
	}
	return errs
}

func validateEmptyDir(e *corev1.EmptyDirVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		errs = append(errs, field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity"))
	}
	switch e.Medium {
	case corev1.StorageMediumDefault, corev1.StorageMediumMemory, corev1.StorageMediumHugePages:
		return errs
	}
	size, huge := strings.CutPrefix(string(e.Medium), string(corev1.StorageMediumHugePagesPrefix))
	if q, err := resource.ParseQuantity(size); !huge || err != nil || q.Sign() <= 0 {
		errs = append(errs, field.NotSupported(at.Child("medium"), e.Medium, []corev1.StorageMedium{
			corev1.StorageMediumDefault, corev1.StorageMediumHugePages, corev1.StorageMediumHugePagesPrefix + "<size>", corev1.StorageMediumMemory,
		}))
	}
	return errs
}

// ValidateHostPath validates a path on the node.
func ValidateHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if h.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "")}
	}
	errs := ValidateNoBacksteps(h.Path, at.Child("path"))
	if h.Type != nil && *h.Type != corev1.HostPathUnset {
		errs = append(errs, fieldcheck.OneOf(*h.Type, at.Child("type"),
			corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
			corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
	}
	return errs
}

// validateFiles validates a volume with the keys of a Secret or a ConfigMap.
func validateFiles(name, nameField string, items []corev1.KeyToPath, mode *int32, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(at.Child(nameField), ""))
	}
	errs = append(errs, validateMode(mode, at.Child("defaultMode"))...)
	for i := range items {
		item, at := &items[i], at.Child("items").Index(i)
		if item.Key == "" {
			errs = append(errs, field.Required(at.Child("key"), ""))
		}
		errs = append(errs, validateFilePath(item.Path, at.Child("path"))...)
		errs = append(errs, validateMode(item.Mode, at.Child("mode"))...)
	}
	return errs
}

func validateDownward(files []corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range files {
		f, at := &files[i], at.Child("items").Index(i)
		errs = append(errs, validateFilePath(f.Path, at.Child("path"))...)
		switch {
		case f.FieldRef != nil && f.ResourceFieldRef != nil:
			errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		case f.FieldRef != nil:
			errs = append(errs, validateFieldRef(f.FieldRef, volumeFields, true, at.Child("fieldRef"))...)
		case f.ResourceFieldRef != nil:
			errs = append(errs, validateResourceRef(f.ResourceFieldRef, true, at.Child("resourceFieldRef"))...)
		default:
			errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
		}
		errs = append(errs, validateMode(f.Mode, at.Child("mode"))...)
	}
	return errs
}

func validateCSI(c *corev1.CSIVolumeSource, at *field.Path) field.ErrorList {
	errs := fieldcheck.DriverName(c.Driver, at.Child("driver"))
	switch ref := c.NodePublishSecretRef; {
	case ref == nil:
	case ref.Name == "":
		errs = append(errs, field.Required(at.Child("nodePublishSecretRef", "name"), ""))
	default:
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(ref.Name), at.Child("name"), ref.Name)...)
	}
	return errs
}

func validateProjected(p *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	errs := validateMode(p.DefaultMode, at.Child("defaultMode"))
	paths := map[string]bool{}
	claim := func(at *field.Path, value any, files ...string) {
		for _, f := range files {
			if f != "" && paths[f] {
				errs = append(errs, field.Invalid(at, value, "conflicting duplicate paths"))
			}
			paths[f] = true
		}
	}
	for i := range p.Sources {
		s, at := &p.Sources[i], at.Child("sources").Index(i)
		sources := 0
		if s.Secret != nil {
			sources++
			errs = append(errs, validateFiles(s.Secret.Name, "name", s.Secret.Items, nil, at.Child("secret"))...)
			claim(at.Child("secret"), s.Secret.Name, itemPaths(s.Secret.Items)...)
		}
		if s.ConfigMap != nil {
			sources++
			errs = append(errs, validateFiles(s.ConfigMap.Name, "name", s.ConfigMap.Items, nil, at.Child("configMap"))...)
			claim(at.Child("configMap"), s.ConfigMap.Name, itemPaths(s.ConfigMap.Items)...)
		}
		if s.DownwardAPI != nil {
			sources++
			errs = append(errs, validateDownward(s.DownwardAPI.Items, at.Child("downwardAPI"))...)
			for _, item := range s.DownwardAPI.Items {
				claim(at.Child("downwardAPI"), item.Path, item.Path)
			}
		}
		if t := s.ServiceAccountToken; t != nil {
			sources++
			errs = append(errs, validateTokenSource(t, at.Child("serviceAccountToken"))...)
			claim(at.Child("serviceAccountToken"), t.Path, t.Path)
		}
		if s.ClusterTrustBundle != nil {
			sources++
			errs = append(errs, refused(at.Child("clusterTrustBundle")))
		}
		if s.PodCertificate != nil {
			sources++
			errs = append(errs, refused(at.Child("podCertificate")))
		}
		switch {
		case sources == 0:
			errs = append(errs, field.Required(at, "must specify a volume type"))
		case sources > 1:
			errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type"))
		}
	}
	return errs
}

func itemPaths(items []corev1.KeyToPath) []string {
	var paths []string
	for _, item := range items {
		paths = append(paths, item.Path)
	}
	return paths
}

func validateTokenSource(t *corev1.ServiceAccountTokenProjection, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch s := t.ExpirationSeconds; {
	case s == nil:
		errs = append(errs, field.Required(at.Child("expirationSeconds"), ""))
	case *s < minTokenSeconds:
		errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
	case *s > maxTokenSeconds:
		errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
	}
	return append(errs, validateFilePath(t.Path, at.Child("path"))...)
}

func validateMode(mode *int32, at *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(at, *mode, fileModeError)}
	}
	return nil
}

// validateFilePath validates the path of a file in a volume. Names that begin with
// two dots are reserved for the atomic writer of the kubelet.
func validateFilePath(p string, at *field.Path) field.ErrorList {
	if p == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := descending(p, at)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") {
		errs = append(errs, field.Invalid(at, p, "must not start with '..'"))
	}
	return errs
}

func descending(p string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(p) {
		errs = append(errs, field.Invalid(at, p, "must be a relative path"))
	}
	return append(errs, ValidateNoBacksteps(p, at)...)
}

// ValidateNoBacksteps checks that no element of the path is "..".
func ValidateNoBacksteps(p string, at *field.Path) field.ErrorList {
	for _, part := range strings.Split(p, "/") {
		if part == ".." {
			return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
		}
	}
	return nil
}

// mounts validates the volume mounts of a container.
func (cc *containerCheck) mounts(c *corev1.Container, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[string]bool{}
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], list.Index(i)
		switch {
		case m.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case cc.volumes[m.Name] == nil:
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		}
		if taken[m.MountPath] {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		taken[m.MountPath] = true
		if m.SubPath != "" {
			errs = append(errs, descending(m.SubPath, at.Child("subPath"))...)
		}
		if m.SubPathExpr != "" {
			if m.SubPath != "" {
				errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
			}
			errs = append(errs, descending(m.SubPathExpr, at.Child("subPathExpr"))...)
		}
		errs = append(errs, validatePropagation(m, c, at)...)
		errs = append(errs, validateRecursiveReadOnly(m, list.Child("recursiveReadOnly"))...)
	}
	return errs
}

// devices validates the block devices of a container.
func (cc *containerCheck) devices(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, paths := map[string]bool{}, map[string]bool{}
	for _, m := range c.VolumeMounts {
		names[m.Name], paths[m.MountPath] = true, true
	}
	seenNames, seenPaths := map[string]bool{}, map[string]bool{}
	for i := range c.VolumeDevices {
		d, at := &c.VolumeDevices[i], at.Index(i)
		name, path := at.Child("name"), at.Child("devicePath")
		switch v := cc.volumes[d.Name]; {
		case d.Name == "":
			errs = append(errs, field.Required(name, ""))
		case v == nil:
			errs = append(errs, field.NotFound(name, d.Name))
		case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
			errs = append(errs, field.Invalid(name, d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		switch {
		case seenNames[d.Name]:
			errs = append(errs, field.Invalid(name, d.Name, "must be unique"))
		case names[d.Name]:
			errs = append(errs, field.Invalid(name, d.Name, "must not already exist in volumeMounts"))
		}
		switch {
		case d.DevicePath == "":
			errs = append(errs, field.Required(path, ""))
		case seenPaths[d.DevicePath]:
			errs = append(errs, field.Invalid(path, d.DevicePath, "must be unique"))
		case paths[d.DevicePath]:
			errs = append(errs, field.Invalid(path, d.DevicePath, "must not already exist as a path in volumeMounts"))
		default:
			errs = append(errs, ValidateNoBacksteps(d.DevicePath, path)...)
		}
		seenNames[d.Name], seenPaths[d.DevicePath] = true, true
	}
	return errs
}

func validatePropagation(m *corev1.VolumeMount, c *corev1.Container, at *field.Path) field.ErrorList {
	if m.MountPropagation == nil {
		return nil
	}
	at = at.Child("mountPropagation")
	switch *m.MountPropagation {
	case corev1.MountPropagationNone, corev1.MountPropagationHostToContainer:
		return nil
	case corev1.MountPropagationBidirectional:
		if s := c.SecurityContext; s == nil || s.Privileged == nil || !*s.Privileged {
			return field.ErrorList{field.Forbidden(at, "Bidirectional mount propagation is available only to privileged containers")}
		}
		return nil
	}
	return field.ErrorList{field.NotSupported(at, *m.MountPropagation, []corev1.MountPropagationMode{
		corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone})}
}

// validateRecursiveReadOnly validates the mode of the mounts below a read-only mount. As
// upstream, its errors do not say which mount of the container is meant.
func validateRecursiveReadOnly(m *corev1.VolumeMount, at *field.Path) field.ErrorList {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return nil
	}
	errs := fieldcheck.OneOf(*m.RecursiveReadOnly, at, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
	if len(errs) > 0 {
		return errs
	}
	if !m.ReadOnly {
		errs = append(errs, field.Forbidden(at, "may only be specified when readOnly is true"))
	}
	if p := m.MountPropagation; p != nil && *p != corev1.MountPropagationNone {
		errs = append(errs, field.Forbidden(at, "may only be specified when mountPropagation is None or not specified"))
	}
	return errs
}
