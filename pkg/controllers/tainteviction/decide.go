package tainteviction

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// forever is how long a pod stays that tolerates everything.
const forever = time.Duration(math.MaxInt64)

// stay says how long the pod may stay, counted from now, on a node with these
// NoExecute taints; 0 or less: it has to go. since is when a taint came to be.
func stay(taints []corev1.Taint, tolerations []corev1.Toleration, since func(corev1.Taint) time.Time, now time.Time) time.Duration {
	left := forever
	for _, t := range taints {
		patience, tolerated := tolerates(t, tolerations)
		switch {
		case !tolerated:
			return 0
		case patience != forever:
			left = min(left, since(t).Add(patience).Sub(now))
		}
	}
	return left
}

// tolerates finds the least patient toleration of a taint.
func tolerates(t corev1.Taint, tolerations []corev1.Toleration) (patience time.Duration, ok bool) {
	patience = forever
	for _, tol := range tolerations {
		if !matches(tol, t) {
			continue
		}
		ok = true
		if tol.TolerationSeconds != nil {
			patience = min(patience, time.Duration(max(0, *tol.TolerationSeconds))*time.Second)
		}
	}
	return patience, ok
}

func matches(tol corev1.Toleration, t corev1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
		return false
	}
	switch tol.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return tol.Key != "" && tol.Value == t.Value
	}
	return false
}

func noExecute(n *corev1.Node) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t)
		}
	}
	return out
}
