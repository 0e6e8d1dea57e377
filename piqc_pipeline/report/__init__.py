"""How are the answers shown to people and to other programs?"""
