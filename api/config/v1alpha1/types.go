package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the files say they are.
const (
	APIVersion  = "config.podium.dev/v1alpha1"
	KindCluster = "Cluster"
)

// Cluster is a cluster of node containers.
type Cluster struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        Metadata   `json:"metadata,omitempty"`
	Nodes           []Node     `json:"nodes,omitempty"` // default: one control plane, which runs ordinary pods too
	Networking      Networking `json:"networking,omitempty"`
	CloudProvider   string     `json:"cloudProvider,omitempty"` // docker: cloud-controller-manager asks the engine about the nodes, and Services of type LoadBalancer get addresses; or none. Default none
	PodSecurity     string     `json:"podSecurity,omitempty"`   // Pod Security level of namespaces whose labels name none: privileged, baseline or restricted. Default privileged
}

// The values of Cluster.PodSecurity.
const (
	PodSecurityPrivileged = "privileged"
	PodSecurityBaseline   = "baseline"
	PodSecurityRestricted = "restricted"
)

// Metadata names the cluster.
type Metadata struct {
	Name string `json:"name,omitempty"` // default "podium"; the start of each node's name
}

// Role is what a node does for the cluster.
type Role string

// The roles.
const (
	ControlPlane Role = "control-plane"
	Worker       Role = "worker"
)

// Node is one machine: a container.
type Node struct {
	Role              Role                         `json:"role"`
	Image             string                       `json:"image,omitempty"`  // default: what --image says
	Zone              string                       `json:"zone,omitempty"`   // failure domain that the cloud provider says the node is in
	Labels            map[string]string            `json:"labels,omitempty"` // of the Node object
	Taints            []corev1.Taint               `json:"taints,omitempty"` // of the Node object, when it is registered
	ExtraMounts       []Mount                      `json:"extraMounts,omitempty"`
	ExtraPortMappings []PortMapping                `json:"extraPortMappings,omitempty"`
	KubeReserved      map[string]resource.Quantity `json:"kubeReserved,omitempty"`   // kept for the daemons
	SystemReserved    map[string]resource.Quantity `json:"systemReserved,omitempty"` // kept for the rest of the node's system
}

// Mount shows a folder or file of the host to a node.
type Mount struct {
	HostPath      string `json:"hostPath"`      // relative to the working directory, or absolute
	ContainerPath string `json:"containerPath"` // absolute
	ReadOnly      bool   `json:"readOnly,omitempty"`
}

// PortMapping leads from a port of the host to one of a node: a NodePort, or
// what listens on the node itself.
type PortMapping struct {
	ContainerPort int32           `json:"containerPort"`
	HostPort      int32           `json:"hostPort"`
	ListenAddress string          `json:"listenAddress,omitempty"` // of the host; default 127.0.0.1
	Protocol      corev1.Protocol `json:"protocol,omitempty"`      // default TCP
}

// Networking says where the cluster's addresses are from.
type Networking struct {
	IPFamily         string `json:"ipFamily,omitempty"`         // ipv4 or ipv6: of pods, Services and nodes; default: that of podSubnet, else of serviceSubnet, else ipv4
	PodSubnet        string `json:"podSubnet,omitempty"`        // default 10.244.0.0/16, or fd00:10:244::/56
	ServiceSubnet    string `json:"serviceSubnet,omitempty"`    // default 10.96.0.0/16, or fd00:10:96::/112
	DNSDomain        string `json:"dnsDomain,omitempty"`        // default cluster.local
	PodNetwork       string `json:"podNetwork,omitempty"`       // routes, vxlan, cloud to have the cloud provider route, or none for a network add-on; default routes
	APIServerAddress string `json:"apiServerAddress,omitempty"` // of the host; default 127.0.0.1
	APIServerPort    int32  `json:"apiServerPort,omitempty"`    // of the host, for the first control plane; default: a free one
}

// The values of Networking.IPFamily.
const (
	IPv4 = "ipv4"
	IPv6 = "ipv6"
)

// The values of Cluster.CloudProvider.
const (
	CloudDocker = "docker"
	CloudNone   = "none"
)

// The values of Networking.PodNetwork.
const (
	PodNetworkRoutes = "routes"
	PodNetworkVXLAN  = "vxlan"
	PodNetworkCloud  = "cloud"
	PodNetworkNone   = "none"
)
