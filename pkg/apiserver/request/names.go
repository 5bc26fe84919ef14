package request

// Names that Kubernetes gives to groups and users.
const (
	Authenticated   = "system:authenticated"
	Unauthenticated = "system:unauthenticated"
	AnonymousUser   = "system:anonymous"
	Masters         = "system:masters" // may do everything, whatever the roles say
	Nodes           = "system:nodes"
	NodePrefix      = "system:node:" // and the node's name: a kubelet
)
