include Makefile
printenv:
	@echo '$(subst ','"'"',$(TEST_ENV))'
