package doctor

// Space is what is found where so many bytes of a disk are free.
func Space(free, all uint64) (found Finding) {
	v := &checkRun{Deps: Deps{Emit: func(f Finding) { found = f }}}
	v.space("/x", free, all)
	return found
}
