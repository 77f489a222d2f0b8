package pairs

// What agents of the simulator do, by the first word that they are told.
const (
	doSay = "say" // repeat what was said
)
