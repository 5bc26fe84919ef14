package kubelet

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// parseTaints parses taints of the forms key=value:effect and key:effect.
func parseTaints(list []string) ([]corev1.Taint, error) {
	var out []corev1.Taint
	for _, text := range list {
		i := strings.LastIndex(text, ":")
		if i < 0 {
			return nil, fmt.Errorf("--register-with-taints %q: want key=value:effect", text)
		}
		key, value, _ := strings.Cut(text[:i], "=")
		effect := corev1.TaintEffect(text[i+1:])
		switch effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return nil, fmt.Errorf("--register-with-taints %q: the effect is NoSchedule, PreferNoSchedule or NoExecute", text)
		}
		out = append(out, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
	return out, nil
}

// parseReserved parses the lists and returns their sum per resource.
func parseReserved(lists ...map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, list := range lists {
		for name, text := range list {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("reserved %s=%s: %w", name, text, err)
			}
			sum := out[corev1.ResourceName(name)]
			sum.Add(q)
			out[corev1.ResourceName(name)] = sum
		}
	}
	return out, nil
}
