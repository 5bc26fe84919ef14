package machine

import (
	"maps"
	"net"
	"slices"
	"strconv"

	"podium/pkg/cluster/admissionconfig"
	"podium/pkg/daemon"
)

// config begins the file of a daemon.
func config(kind string, content settings) settings {
	out := settings{"apiVersion": daemon.ConfigAPIVersion, "kind": kind}
	maps.Copy(out, content)
	return out
}

func kubeconfigFile(daemon string) string {
	return configDir + "/" + kubeconfigs + "/" + daemon + ".conf"
}

func pkiFile(name string) string { return pkiDir + "/" + name }

// controlPlane are the units of a machine that is part of the control plane.
func (m *machine) controlPlane() []unit {
	out := []unit{m.etcd(), m.apiserver(), m.controllerManager(), m.scheduler()}
	if m.Cloud != "" {
		out = append(out, m.cloudControllerManager())
	}
	return out
}

// node are the units of every machine.
func (m *machine) node() []unit { return []unit{m.kubelet(), m.proxy()} }

// etcd's file is etcd's own; its format is its flags in kebab-case.
func (m *machine) etcd() unit {
	peer := m.peerURL(m.NodeIP)
	security := func(name string) settings {
		return settings{
			"cert-file": pkiFile("etcd/" + name + ".crt"), "key-file": pkiFile("etcd/" + name + ".key"),
			"trusted-ca-file": pkiFile("etcd/ca.crt"), "client-cert-auth": true,
		}
	}
	members, state := m.Node+"="+peer, "new"
	if m.EtcdMembers != "" {
		members, state = m.EtcdMembers, "existing"
	}
	return unit{name: "etcd", file: "etcd.yaml", conf: settings{
		"name":                        m.Node,
		"data-dir":                    etcdData,
		"listen-client-urls":          clientURL("127.0.0.1") + "," + clientURL(m.NodeIP),
		"advertise-client-urls":       clientURL(m.NodeIP),
		"listen-peer-urls":            peer,
		"initial-advertise-peer-urls": peer,
		"initial-cluster":             members,
		"initial-cluster-state":       state,
		"initial-cluster-token":       m.Cluster,
		"client-transport-security":   security("server"),
		"peer-transport-security":     security("peer"),
		"listen-metrics-urls":         "http://127.0.0.1:2381",
		"quota-backend-bytes":         int64(8 << 30),
		"log-level":                   "warn",
		"tls-min-version":             "TLS1.2",
	}}
}

func clientURL(host string) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(etcdClientPort))
}

func (m *machine) peerURL(host string) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(etcdPeerPort))
}

func (m *machine) apiserver() unit {
	conf := settings{
		"etcdServers":              []string{clientURL("127.0.0.1")},
		"etcdCafile":               pkiFile("etcd/ca.crt"),
		"etcdCertfile":             pkiFile("apiserver-etcd-client.crt"),
		"etcdKeyfile":              pkiFile("apiserver-etcd-client.key"),
		"encryptionProviderConfig": pkiFile(encryptionFile),
		"encryptionProviderConfigAutomaticReload": true,
		"auditPolicyFile":                         auditPolicy,
		"auditLogPath":                            auditLog,
		"auditLogMaxage":                          30,
		"auditLogMaxbackup":                       10,
		"securePort":                              m.Port,
		"advertiseAddress":                        m.NodeIP,
		"hostnameOverride":                        m.Node,
		"enableBootstrapTokenAuth":                true,
		"clientCaFile":                            pkiFile("ca.crt"),
		"clientCrlFile":                           pkiFile(revokedFile),
		"tlsCertFile":                             pkiFile("apiserver.crt"),
		"tlsPrivateKeyFile":                       pkiFile("apiserver.key"),
		"kubeletCertificateAuthority":             pkiFile(kubeletBundle),
		"kubeletClientCertificate":                pkiFile("apiserver-kubelet-client.crt"),
		"kubeletClientKey":                        pkiFile("apiserver-kubelet-client.key"),
		"serviceAccountIssuer":                    "https://kubernetes.default.svc." + m.DNSDomain,
		"serviceAccountSigningKeyFile":            pkiFile("sa.key"),
		"serviceAccountKeyFile":                   []string{pkiFile("sa.pub")},
		"serviceClusterIpRange":                   m.ServiceCIDR,
		"profiling":                               false,
	}
	if admissionconfig.Restricts(m.PodSecurity) {
		conf["admissionControlConfigFile"] = m.admissionConfig()
	}
	return unit{name: "kube-apiserver", file: "kube-apiserver.yaml", conf: config("KubeApiserverConfiguration", conf)}
}

func (m *machine) controllerManager() unit {
	return unit{name: "kube-controller-manager", file: "kube-controller-manager.yaml", conf: config("KubeControllerManagerConfiguration", elected(settings{
		"kubeconfig":                                kubeconfigFile("kube-controller-manager"),
		"clientCaFile":                              pkiFile("ca.crt"),
		"rootCaFile":                                pkiFile("ca.crt"),
		"clusterSigningKubeletServingCertFile":      pkiFile(kubeletCA + ".crt"),
		"clusterSigningKubeletServingKeyFile":       pkiFile(kubeletCA + ".key"),
		"clusterSigningKubeletClientCertFile":       pkiFile("ca.crt"),
		"clusterSigningKubeletClientKeyFile":        pkiFile("ca.key"),
		"clusterSigningKubeApiserverClientCertFile": pkiFile("ca.crt"),
		"clusterSigningKubeApiserverClientKeyFile":  pkiFile("ca.key"),
		"serviceAccountPrivateKeyFile":              pkiFile("sa.key"),
		"clusterCidr":                               []string{m.PodCIDR},
		"bindAddress":                               "127.0.0.1",
		"profiling":                                 false,
	}))}
}

func (m *machine) scheduler() unit {
	return unit{name: "kube-scheduler", file: "kube-scheduler.yaml", conf: config("KubeSchedulerConfiguration", elected(settings{
		"kubeconfig":   kubeconfigFile("kube-scheduler"),
		"clientCaFile": pkiFile("ca.crt"),
		"bindAddress":  "127.0.0.1",
		"profiling":    false,
	}))}
}

// elected is a daemon of which one in the cluster works at a time. The times
// are shorter than the daemons' own: when a leader's machine is lost, the next
// is at work within a dozen seconds.
func elected(content settings) settings {
	content["leaderElect"] = true
	content["leaderElectLeaseDuration"] = "10s"
	content["leaderElectRenewDeadline"] = "7s"
	content["leaderElectRetryPeriod"] = "1500ms"
	return content
}

func (m *machine) kubelet() unit {
	conf := settings{
		"kubeconfig":               configDir + "/kubelet.conf",
		"hostnameOverride":         m.Node,
		"nodeIp":                   []string{m.NodeIP},
		"containerRuntimeEndpoint": m.runtimeSocket(),
		"podInfraContainerImage":   sandboxImage,
		"cgroupDriver":             m.CgroupDriver,
		"clusterDns":               []string{m.nth(10)},
		"clusterDomain":            m.DNSDomain,
		"clientCaFile":             pkiFile("ca.crt"),
		"tlsCertFile":              pkiFile("kubelet-serving.crt"),
		"tlsPrivateKeyFile":        pkiFile("kubelet-serving.key"),
	}
	for key, value := range map[string]map[string]string{"nodeLabels": m.NodeLabels, "kubeReserved": m.KubeReserved, "systemReserved": m.SystemReserved} {
		if len(value) > 0 {
			conf[key] = value
		}
	}
	if m.Cloud != "" {
		conf["cloudProvider"] = "external"
	}
	if len(m.NodeTaints) > 0 {
		conf["registerWithTaints"] = slices.Clone(m.NodeTaints)
	}
	return unit{name: "kubelet", file: "kubelet.yaml", conf: config("KubeletConfiguration", conf)}
}

func (m *machine) proxy() unit {
	return unit{name: "kube-proxy", file: "kube-proxy.yaml", conf: config("KubeProxyConfiguration", settings{
		"kubeconfig":       kubeconfigFile("kube-proxy"),
		"hostnameOverride": m.Node,
		"clusterCidr":      m.PodCIDR,
		"podNetwork":       m.PodNetwork,
	})}
}
