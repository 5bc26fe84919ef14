package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The apiVersion of all configuration files, and the kind of a Cluster.
const (
	APIVersion  = "config.podium.dev/v1alpha1"
	KindCluster = "Cluster"
)

// Cluster describes a cluster whose nodes are containers.
type Cluster struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        Metadata   `json:"metadata,omitempty"`
	Nodes           []Node     `json:"nodes,omitempty"` // default: one control plane, which runs ordinary pods too
	Networking      Networking `json:"networking,omitempty"`
	CloudProvider   string     `json:"cloudProvider,omitempty"` // docker (cloud-controller-manager reads nodes from the engine, and Services of type LoadBalancer get addresses) or none. Default none
	PodSecurity     string     `json:"podSecurity,omitempty"`   // Pod Security level of namespaces without a label for it: privileged, baseline or restricted. Default privileged
}

// The values of Cluster.PodSecurity.
const (
	PodSecurityPrivileged = "privileged"
	PodSecurityBaseline   = "baseline"
	PodSecurityRestricted = "restricted"
)

// Metadata holds the name of the cluster.
type Metadata struct {
	Name string `json:"name,omitempty"` // prefix of the nodes' names; default "podium"
}

// Role is the role of a node in the cluster.
type Role string

// The values of Role.
const (
	ControlPlane Role = "control-plane"
	Worker       Role = "worker"
)

// Node describes a node, which is a container.
type Node struct {
	Role              Role                         `json:"role"`
	Image             string                       `json:"image,omitempty"`  // default: the value of --image
	Zone              string                       `json:"zone,omitempty"`   // failure domain that the cloud provider reports for the node
	Labels            map[string]string            `json:"labels,omitempty"` // of the Node object
	Taints            []corev1.Taint               `json:"taints,omitempty"` // of the Node object at its registration
	ExtraMounts       []Mount                      `json:"extraMounts,omitempty"`
	ExtraPortMappings []PortMapping                `json:"extraPortMappings,omitempty"`
	KubeReserved      map[string]resource.Quantity `json:"kubeReserved,omitempty"`   // resources reserved for the daemons
	SystemReserved    map[string]resource.Quantity `json:"systemReserved,omitempty"` // resources reserved for the rest of the system
}

// Mount is a bind mount of a directory or file of the host.
type Mount struct {
	HostPath      string `json:"hostPath"`      // relative to the working directory, or absolute
	ContainerPath string `json:"containerPath"` // absolute
	ReadOnly      bool   `json:"readOnly,omitempty"`
}

// PortMapping forwards a port of the host to a port of a node: a NodePort, or a
// port that a process on the node listens on.
type PortMapping struct {
	ContainerPort int32           `json:"containerPort"`
	HostPort      int32           `json:"hostPort"`
	ListenAddress string          `json:"listenAddress,omitempty"` // of the host; default 127.0.0.1
	Protocol      corev1.Protocol `json:"protocol,omitempty"`      // default TCP
}

// Networking holds the cluster's address ranges and network settings.
type Networking struct {
	IPFamily         string `json:"ipFamily,omitempty"`         // family of pods, Services and nodes, ipv4 or ipv6; default: that of podSubnet, else of serviceSubnet, else ipv4
	PodSubnet        string `json:"podSubnet,omitempty"`        // default 10.244.0.0/16, or fd00:10:244::/56
	ServiceSubnet    string `json:"serviceSubnet,omitempty"`    // default 10.96.0.0/16, or fd00:10:96::/112
	DNSDomain        string `json:"dnsDomain,omitempty"`        // default cluster.local
	PodNetwork       string `json:"podNetwork,omitempty"`       // routes, vxlan, cloud (the cloud provider sets up routes) or none (an add-on provides the network); default routes
	APIServerAddress string `json:"apiServerAddress,omitempty"` // of the host; default 127.0.0.1
	APIServerPort    int32  `json:"apiServerPort,omitempty"`    // of the host, for the first control plane; default: any free port
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
