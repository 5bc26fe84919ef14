package podspec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const notEphemeral = "cannot be set for an Ephemeral Container"

// ephemeralFields are the fields that an ephemeral container may set, by their Go
// names.
var ephemeralFields = []string{
	"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
	"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY",
}

// ephemeral validates an ephemeral container. The names of all other containers have
// been checked before.
func (cc *containerCheck) ephemeral(c *corev1.EphemeralContainer, path *field.Path) field.ErrorList {
	common := (*corev1.Container)(&c.EphemeralContainerCommon)
	errs := cc.container(common, path)
	if t := c.TargetContainerName; t != "" {
		is := func(c corev1.Container) bool { return c.Name == t }
		if !slices.ContainsFunc(cc.spec.Containers, is) && !slices.ContainsFunc(cc.spec.InitContainers, is) {
			errs = append(errs, field.NotFound(path.Child("targetContainerName"), t))
		}
	}
	v := reflect.ValueOf(*common)
	for i := range v.NumField() {
		if f := v.Type().Field(i); !slices.Contains(ephemeralFields, f.Name) && !v.Field(i).IsZero() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			errs = append(errs, field.Forbidden(path.Child(name), notEphemeral))
		}
	}
	for i, m := range c.VolumeMounts {
		at := path.Child("volumeMounts").Index(i)
		if m.SubPath != "" {
			errs = append(errs, field.Forbidden(at.Child("subPath"), notEphemeral))
		}
		if m.SubPathExpr != "" {
			errs = append(errs, field.Forbidden(at.Child("subPathExpr"), notEphemeral))
		}
	}
	return errs
}

// ValidateEphemeralUpdate checks that ephemeral containers are only added.
func ValidateEphemeralUpdate(new, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range old.EphemeralContainers {
		before := &old.EphemeralContainers[i]
		at := slices.IndexFunc(new.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == before.Name })
		switch {
		case at < 0:
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", before.Name)))
		case !apiequality.Semantic.DeepEqual(before, &new.EphemeralContainers[at]):
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%s", before.Name, Changes(before, &new.EphemeralContainers[at]))))
		}
	}
	return errs
}
