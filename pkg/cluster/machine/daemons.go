package machine

import (
	"maps"
	"slices"

	"podium/pkg/cluster/admissionconfig"
	"podium/pkg/cluster/containerd"
	"podium/pkg/cluster/machine/etcd"
	"podium/pkg/daemon"
)

// config returns a daemon's configuration with its apiVersion and kind.
func config(kind string, content settings) settings {
	out := settings{"apiVersion": daemon.ConfigAPIVersion, "kind": kind}
	maps.Copy(out, content)
	return out
}

func kubeconfigFile(daemon string) string {
	return configDir + "/" + kubeconfigs + "/" + daemon + ".conf"
}

func pkiFile(name string) string { return pkiDir + "/" + name }

// controlPlane returns the units of a control plane, in start order.
func (m *machine) controlPlane() []unit {
	out := []unit{m.etcd(), m.apiserver(), m.controllerManager(), m.scheduler()}
	if m.Cloud != "" {
		out = append(out, m.cloudControllerManager())
	}
	return out
}

// node returns the units that every machine runs, in start order.
func (m *machine) node() []unit { return []unit{m.kubelet(), m.proxy()} }

// etcd returns etcd's unit. Its file has etcd's own format: the flags in
// kebab-case.
func (m *machine) etcd() unit {
	peer := etcd.PeerURL(m.NodeIP)
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
		"listen-client-urls":          etcd.ClientURL("127.0.0.1") + "," + etcd.ClientURL(m.NodeIP),
		"advertise-client-urls":       etcd.ClientURL(m.NodeIP),
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

func (m *machine) apiserver() unit {
	conf := settings{
		"etcdServers":              []string{etcd.ClientURL("127.0.0.1")},
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
	maps.Copy(conf, frontProxy())
	if admissionconfig.Restricts(m.PodSecurity) {
		conf["admissionControlConfigFile"] = m.admissionConfig()
	}
	return unit{name: "kube-apiserver", file: "kube-apiserver.yaml", conf: config("KubeApiserverConfiguration", conf)}
}

// frontProxy is the configuration by which the API server believes a proxy that
// shows the certificate of front-proxy-client, and extension API servers do: they
// read it in kube-system/extension-apiserver-authentication. The API server itself is
// the proxy in front of them.
func frontProxy() settings {
	return settings{
		"requestheaderClientCaFile":       pkiFile(frontProxyCA + ".crt"),
		"requestheaderAllowedNames":       []string{frontProxyClient},
		"requestheaderUsernameHeaders":    []string{"X-Remote-User"},
		"requestheaderUidHeaders":         []string{"X-Remote-Uid"},
		"requestheaderGroupHeaders":       []string{"X-Remote-Group"},
		"requestheaderExtraHeadersPrefix": []string{"X-Remote-Extra-"},
		"proxyClientCertFile":             pkiFile(frontProxyClient + ".crt"),
		"proxyClientKeyFile":              pkiFile(frontProxyClient + ".key"),
	}
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

// elected adds leader election to a daemon's settings. The intervals are
// shorter than the daemons' defaults: after the loss of the leader's machine
// another one takes over within a dozen seconds.
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
		"podInfraContainerImage":   containerd.SandboxImage,
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
