package request

// The names of groups and users that Kubernetes defines.
const (
	Authenticated   = "system:authenticated"
	Unauthenticated = "system:unauthenticated"
	AnonymousUser   = "system:anonymous"
	Masters         = "system:masters" // allowed everything, whatever the roles
	Nodes           = "system:nodes"
	NodePrefix      = "system:node:" // followed by the node's name: the user name of its kubelet
)
