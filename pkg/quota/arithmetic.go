package quota

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Add adds the quantities of more to list.
func Add(list, more corev1.ResourceList) {
	for name, q := range more {
		sum := list[name].DeepCopy()
		sum.Add(q)
		list[name] = sum
	}
}

// Growth returns what now has more than before, without zeros.
func Growth(now, before corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range now {
		more := q.DeepCopy()
		more.Sub(before[name])
		if more.Sign() > 0 {
			out[name] = more
		}
	}
	return out
}

// Select returns the quantities of the names, without those that list does not have.
func Select(list corev1.ResourceList, names []corev1.ResourceName) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range names {
		if q, ok := list[name]; ok {
			out[name] = q
		}
	}
	return out
}

// Exceeded returns the names, sorted, of which used plus more is above hard.
func Exceeded(used, more, hard corev1.ResourceList) []corev1.ResourceName {
	var out []corev1.ResourceName
	for name, q := range more {
		limit, limited := hard[name]
		sum := used[name].DeepCopy()
		sum.Add(q)
		if limited && sum.Cmp(limit) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Equal reports whether two lists have the same names and quantities.
func Equal(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// Text formats quantities as messages have them: cpu=1,memory=2Gi.
func Text(list corev1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		out = append(out, string(name)+"="+q.String())
	}
	return strings.Join(out, ",")
}

// NamesText formats names as messages have them: cpu,memory.
func NamesText(names []corev1.ResourceName) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = string(name)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
