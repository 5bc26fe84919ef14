module podium/test/peers

go 1.26.0

require (
	k8s.io/client-go v0.36.6 // indirect
	k8s.io/component-base v0.36.6 // indirect
	k8s.io/kubectl v0.36.6 // indirect
	podium v0.0.0
)

replace podium => ../..
