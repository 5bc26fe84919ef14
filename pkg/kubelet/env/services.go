package env

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is the Service in namespace default whose variables every container gets.
const apiService = "kubernetes"

// serviceVars returns the variables of the Services that the pod sees: those of its
// namespace unless spec.enableServiceLinks is false, and always default/kubernetes.
func serviceVars(pod *corev1.Pod, services []*corev1.Service) map[string]string {
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	vars := map[string]string{}
	for _, s := range services { // first, so that a Service of this name in the pod's namespace wins
		if s.Namespace == metav1.NamespaceDefault && s.Name == apiService {
			addService(vars, s)
		}
	}
	for _, s := range services {
		if links && s.Namespace == pod.Namespace {
			addService(vars, s)
		}
	}
	return vars
}

// addService adds the variables of a Service. It skips Services without a cluster IP
// or ports.
func addService(vars map[string]string, s *corev1.Service) {
	ip := s.Spec.ClusterIP
	if ip == "" || ip == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
		return
	}
	prefix := variable(s.Name)
	vars[prefix+"_SERVICE_HOST"] = ip
	vars[prefix+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i, p := range s.Spec.Ports {
		port := strconv.Itoa(int(p.Port))
		if p.Name != "" {
			vars[prefix+"_SERVICE_PORT_"+variable(p.Name)] = port
		}
		protocol := string(p.Protocol)
		if protocol == "" {
			protocol = string(corev1.ProtocolTCP)
		}
		// Upstream sets the variables of Docker's --link too, and programs read them.
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			vars[prefix+"_PORT"] = url
		}
		link := fmt.Sprintf("%s_PORT_%s_%s", prefix, port, strings.ToUpper(protocol))
		vars[link] = url
		vars[link+"_PROTO"] = strings.ToLower(protocol)
		vars[link+"_PORT"] = port
		vars[link+"_ADDR"] = ip
	}
}

func variable(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
