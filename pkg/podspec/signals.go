package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateStopSignal validates the signal that stops a container. Its pod must name its
// operating system, since signals differ.
func validateStopSignal(signal *corev1.Signal, os *corev1.PodOS, path *field.Path) field.ErrorList {
	if signal == nil {
		return nil
	}
	if os == nil || os.Name == "" {
		return field.ErrorList{field.Forbidden(path, "may not be set for containers with empty `spec.os.name`")}
	}
	if all := linuxSignals(); !slices.Contains(all, *signal) {
		return field.ErrorList{field.NotSupported(path, *signal, all)}
	}
	return nil
}

// linuxSignals returns the names of all signals of Linux, sorted.
func linuxSignals() []corev1.Signal {
	all := []corev1.Signal{
		corev1.SIGABRT, corev1.SIGALRM, corev1.SIGBUS, corev1.SIGCHLD, corev1.SIGCLD, corev1.SIGCONT, corev1.SIGFPE, corev1.SIGHUP,
		corev1.SIGILL, corev1.SIGINT, corev1.SIGIO, corev1.SIGIOT, corev1.SIGKILL, corev1.SIGPIPE, corev1.SIGPOLL, corev1.SIGPROF,
		corev1.SIGPWR, corev1.SIGQUIT, corev1.SIGSEGV, corev1.SIGSTKFLT, corev1.SIGSTOP, corev1.SIGSYS, corev1.SIGTERM, corev1.SIGTRAP,
		corev1.SIGTSTP, corev1.SIGTTIN, corev1.SIGTTOU, corev1.SIGURG, corev1.SIGUSR1, corev1.SIGUSR2, corev1.SIGVTALRM, corev1.SIGWINCH,
		corev1.SIGXCPU, corev1.SIGXFSZ, corev1.SIGRTMIN, corev1.SIGRTMAX,
	}
	// The real-time signals count from both ends of their range, as glibc names them.
	const fromMin, fromMax = 15, 14
	for i := 1; i <= fromMin; i++ {
		all = append(all, corev1.Signal(fmt.Sprintf("%s+%d", corev1.SIGRTMIN, i)))
	}
	for i := 1; i <= fromMax; i++ {
		all = append(all, corev1.Signal(fmt.Sprintf("%s-%d", corev1.SIGRTMAX, i)))
	}
	slices.Sort(all)
	return all
}
