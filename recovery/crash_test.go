package recovery_test

func childMain() bool { return false }
