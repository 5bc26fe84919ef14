package apiserver

// stackSize is the size of the stack that nearly all requests need, in bytes.
const stackSize = 12 << 10

// growStack grows the goroutine's stack, while there is little on it to copy. Each request
// has a goroutine of its own, and the runtime would grow the stack deep in the chain.
//
//go:noinline
func growStack() byte {
	var room [stackSize]byte
	return room[grownAt]
}

var grownAt int // unknown to the compiler, which would drop the array
