package podspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
)

func TestImageVolumesAreValidated(t *testing.T) {
	for name, row := range map[string]struct {
		image  corev1.ImageVolumeSource
		policy corev1.PullPolicy // after the defaults
		want   []string
	}{
		"Tag":    {image: corev1.ImageVolumeSource{Reference: "registry.example/data:v1"}, policy: corev1.PullIfNotPresent},
		"Latest": {image: corev1.ImageVolumeSource{Reference: "registry.example/data"}, policy: corev1.PullAlways},
		"Never":  {image: corev1.ImageVolumeSource{Reference: "data", PullPolicy: corev1.PullNever}, policy: corev1.PullNever},
		"BadPolicy": {image: corev1.ImageVolumeSource{Reference: "data", PullPolicy: "Sometimes"}, policy: "Sometimes",
			want: []string{`spec.volumes[0].image.pullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`}},
		"NoImage": {image: corev1.ImageVolumeSource{PullPolicy: corev1.PullAlways}, policy: corev1.PullAlways,
			want: []string{"spec.volumes[0].image.reference: Required value"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := minimal()
			spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Image: &row.image}}}
			podspec.Default(spec)
			path := field.NewPath("spec")
			errs := append(podspec.Validate(spec, path), podspec.RequireImages(spec.Volumes, path.Child("volumes"))...)
			if diff := cmp.Diff(row.want, texts(errs)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if got := spec.Volumes[0].Image.PullPolicy; got != row.policy {
				t.Errorf("the pull policy is %q, want %q", got, row.policy)
			}
		})
	}
}
